"""The local page of ``fala demo``, which shows how a personal model is carried over."""
