"""Figures of records: how good scores are, and what may be said of a few users."""
