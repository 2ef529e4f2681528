"""Successive releases of a vendor on one user's device."""
