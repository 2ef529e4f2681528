"""The command ``fala-device``, and what all commands of the project share."""
