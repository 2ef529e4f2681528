"""The vendor's releases, made from a backbone and a data set's public rows, without any user."""
