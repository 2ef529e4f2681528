"""Hugging Face models: find, read and load them, and embed texts by them."""
