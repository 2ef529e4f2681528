"""Pre-trained backbones: their catalogue, their folders, and their download."""
