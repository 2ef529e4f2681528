"""The graph that devices run: fewer bits, optional inputs, and how near it is to its model."""
