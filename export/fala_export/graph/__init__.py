"""The graph that devices run: quantization, optional inputs, parity with the model, and cost."""
