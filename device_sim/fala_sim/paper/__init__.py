"""The paper's fit, for comparisons: a diagonal matrix by ridge regression."""
