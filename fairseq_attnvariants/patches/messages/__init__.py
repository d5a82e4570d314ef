"""Messages that refuse wrong names and options in one sentence."""
