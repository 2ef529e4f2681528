"""Training of a transformer on one user's labels, and what it costs. All of it needs torch."""
