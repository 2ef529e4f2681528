"""A vendor's releases over a user's life."""
