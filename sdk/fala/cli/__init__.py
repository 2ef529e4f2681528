"""The command ``fala-device``, and the shared parts of all commands."""
