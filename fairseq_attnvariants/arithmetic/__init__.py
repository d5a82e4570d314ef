"""Number types of matrix products: the requested type, or the quickest type on this machine."""
