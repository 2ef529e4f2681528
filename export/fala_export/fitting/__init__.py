"""What a release is fitted with: heads, words, bridges, priors and scales. NumPy alone.

The prior needs SciPy.
"""
