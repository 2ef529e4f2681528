"""Training of a transformer on one user's labels, and its cost; this package needs torch."""
