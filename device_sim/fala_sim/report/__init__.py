"""Registers, writes and draws tables and plots."""
