"""The formats of data sets, with one module per format that reads its files."""
