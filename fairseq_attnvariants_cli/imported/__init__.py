"""Models that other toolkits trained, as checkpoints."""
