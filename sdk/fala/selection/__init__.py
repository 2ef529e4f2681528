"""Which examples and texts to encode."""
