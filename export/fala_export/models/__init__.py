"""Hugging Face models: where they come from, what is in their files, and how they embed texts."""
