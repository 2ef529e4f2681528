"""Global training: by the vendor, on public rows, with PyTorch (the paper's first phase)."""
