"""Pre-trained backbones: what they are, where they lie, and how they are brought here."""
