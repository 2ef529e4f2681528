"""The commands of ``fala-export``, one a module."""
