"""``fala demo``: a page on this machine where a visitor sees a personal model survive."""
