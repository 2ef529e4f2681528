"""Ways to make a user's model on a new backbone, one in each file."""
