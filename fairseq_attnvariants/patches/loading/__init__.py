"""Loading: a checkpoint, a configuration or an archive does no harm."""
