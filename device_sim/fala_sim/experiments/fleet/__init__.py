"""A fleet of simulated devices over successive releases: real folders, invented users."""
