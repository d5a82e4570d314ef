"""The subcommands, a module each: ``add`` adds its options to a parser, ``run`` runs it."""
