"""The choice of the examples and texts to encode."""
