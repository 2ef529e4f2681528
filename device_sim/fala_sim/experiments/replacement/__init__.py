"""Replacements: every method on every user, our own by budget, and several in turn."""
