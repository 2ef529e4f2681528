"""The head, the personal model, the lexical view, and bridges between backbones."""
