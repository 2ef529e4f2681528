"""The head, the personal model, the lexical view, bridges."""
