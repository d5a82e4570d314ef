"""Tasks (none of our own yet: the stock translation task serves every architecture)."""
