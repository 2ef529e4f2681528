"""Learning curves: methods with the first few of a user's examples."""
