"""Records of jobs: appended with their provenance, digests and a frame of them."""
