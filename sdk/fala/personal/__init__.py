"""The order of things: learn, replace, refine."""
