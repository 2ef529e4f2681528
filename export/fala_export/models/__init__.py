"""Find, read and load Hugging Face models, and embed texts with them."""
