"""The paper's ablations (Tables 3 to 7)."""
