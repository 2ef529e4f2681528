"""The paper's own fit: a diagonal matrix by ridge regression, for those who compare."""
