"""The subcommands, a module each: ``add`` adds its options to a parser, ``run`` runs it.

The docstring of ``add`` is what ``--help`` says of the subcommand.
"""
