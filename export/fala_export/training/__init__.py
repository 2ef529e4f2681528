"""Global training: what a vendor does with public rows and PyTorch (the paper's first phase)."""
