"""Signed updates: The Update Framework's client, over the standard library's HTTP."""
