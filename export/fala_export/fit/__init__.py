"""Fit the parts of a release, with NumPy alone: heads, n-grams, bridges and prior variances."""
