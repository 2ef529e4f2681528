"""Bridges: from an earlier backbone's embeddings to a new one's."""
