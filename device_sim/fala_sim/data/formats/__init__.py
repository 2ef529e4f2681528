"""The formats of data sets: a module for each reads its files."""
