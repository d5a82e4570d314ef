"""Messages: wrong names and options are refused in one sentence."""
