"""``fala demo``: a local page where a visitor sees a personal model survive a new backbone."""
