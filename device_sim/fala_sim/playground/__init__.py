"""The command ``fala-replace``, its sample data and releases, and the demo."""
