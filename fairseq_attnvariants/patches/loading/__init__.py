"""Safe loading of checkpoints, configurations and archives."""
