"""Records of jobs, appended with their provenance and digests, and a data frame of them."""
