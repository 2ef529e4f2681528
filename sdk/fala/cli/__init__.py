"""What the commands of all three packages share; the command ``fala-device`` is in ``device``."""

from fala.cli.commands import SETTINGS, Command, Group
from fala.cli.names import Described, Named
from fala.cli.progress_bars import Bar, progress
from fala.errors import be, counted, with_article

__all__ = [
    "SETTINGS",
    "Bar",
    "Command",
    "Described",
    "Group",
    "Named",
    "be",
    "counted",
    "progress",
    "with_article",
]
