"""Text: the files that the subcommands read and write."""
