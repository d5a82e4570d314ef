"""From options to a model: options, architectures as data, refusals and the builder."""
