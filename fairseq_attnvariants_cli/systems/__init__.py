"""Systems: trained models that the subcommands load, and what they compute."""
