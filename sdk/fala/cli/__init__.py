"""What the command ``fala-device`` does to a device's folder."""
