"""Train globally: the vendor trains on public rows with PyTorch (the paper's first phase)."""
