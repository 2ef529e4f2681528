"""``fala-replace`` and what it plays with."""
