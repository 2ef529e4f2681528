"""Registers, writes and draws tables and plots, and makes the report."""
