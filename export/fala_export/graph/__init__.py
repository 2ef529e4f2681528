"""Prepare the graph that devices run: quantization, optional inputs, parity and cost."""
