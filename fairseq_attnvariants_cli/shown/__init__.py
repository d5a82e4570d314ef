"""Output: tables and pictures."""
