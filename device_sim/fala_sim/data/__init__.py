"""The public data sets: what they are, where they lie, and how they come from their publishers."""
