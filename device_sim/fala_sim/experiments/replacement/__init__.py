"""Replacements: every method on every user, and FaLA at several budgets."""
