"""Number types of matrix products: the one that is asked for, or what is quickest here."""
