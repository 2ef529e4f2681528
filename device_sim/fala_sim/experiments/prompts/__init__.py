"""Oba et al. (PerPLM): writers' prompts against none."""
