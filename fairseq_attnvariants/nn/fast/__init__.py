"""What is there for speed alone; each is equal to the plain way, and says what it brings."""
