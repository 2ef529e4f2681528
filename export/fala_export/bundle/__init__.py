"""Export bundles, write them, and check that a device admits them."""
