"""The command ``fairseq-attnvariants``, beside the package that fairseq reads, as ``fairseq_cli`` is beside fairseq.

Importing :mod:`fairseq_attnvariants` registers its models, and so imports fairseq and torch; those on text do without.
"""
