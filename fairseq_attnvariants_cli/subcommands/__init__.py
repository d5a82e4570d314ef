"""The subcommands, a module each: ``Options`` are its options, ``run`` runs it with them.

The docstring of ``Options`` is what ``--help`` says of the subcommand, and of each option.
"""
