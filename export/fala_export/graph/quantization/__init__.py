"""Quantization: store a model in fewer bits, and run it in integers."""
