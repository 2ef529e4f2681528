"""Replacements: every method on every user, and ours at several budgets."""
