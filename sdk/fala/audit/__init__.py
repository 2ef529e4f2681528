"""Rejects hostile models and tokenizers from their bytes, before any other library reads them."""
