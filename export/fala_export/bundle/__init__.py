"""Bundles: exported, written, and admitted as a device admits them."""
