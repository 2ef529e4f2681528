"""What a release is fitted with: heads, words, bridges and scales. NumPy alone."""
