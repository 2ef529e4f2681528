"""A fleet of simulated devices over successive releases: real device folders, invented readers."""
