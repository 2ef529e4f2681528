"""``python -m fala.playground.page``: the command under its own name."""

from fala.playground.page.command import main

main()
