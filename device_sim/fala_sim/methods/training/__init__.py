"""Training of a transformer on one user's labels, and its cost. This room needs torch."""
