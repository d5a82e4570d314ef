"""Training: a training that is stopped or repeated loses nothing and changes nothing."""
