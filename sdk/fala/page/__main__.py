"""``python -m fala.page``: the command under its own name."""

from fala.page.command import main

main()
