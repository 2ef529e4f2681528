"""The public data sets: their catalogue, their folders, and their download from publishers."""
