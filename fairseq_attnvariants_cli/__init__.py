"""The command ``fairseq-attnvariants``, a package of its own, as ``fairseq_cli`` is.

Importing :mod:`fairseq_attnvariants` registers its models, and so imports fairseq and torch. Subcommands on text do not
need them.
"""
