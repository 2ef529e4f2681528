"""Embed a corpus once with any backbone, and keep the embeddings in a table on disk."""

from fala_export.embedding.embedder import Embedder, Embeddings, open_earlier
from fala_export.embedding.encoding import embed
from fala_export.embedding.table import VectorFile

__all__ = ["Embedder", "Embeddings", "VectorFile", "embed", "open_earlier"]
