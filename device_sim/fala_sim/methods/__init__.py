"""Methods that make a user's model on a new backbone, with one file per method."""
