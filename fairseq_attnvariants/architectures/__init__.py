"""From options to a model: the options, the architectures as data, what is refused, and the builder."""
