"""A vendor's release as one file."""
