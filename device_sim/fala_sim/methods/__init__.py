"""Methods that make a user's model on a new backbone, one per file."""
