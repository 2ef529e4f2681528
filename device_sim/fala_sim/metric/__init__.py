"""Metrics of scores, and statistics over a few users."""
