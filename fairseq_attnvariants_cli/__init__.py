"""The command ``fairseq-attnvariants``. It is a separate package, like ``fairseq_cli``.

An import of :mod:`fairseq_attnvariants` registers its models, and therefore imports fairseq and torch. Subcommands on
text need neither.
"""
