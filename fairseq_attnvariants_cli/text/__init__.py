"""The text files and folders that the subcommands read and write."""
