"""The local page of ``fala demo``, which shows that a personal model survives a new backbone."""
