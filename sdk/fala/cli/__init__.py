"""What the commands of all three packages share; ``device`` has the command ``fala-device``."""

from fala.cli.commands import SETTINGS, Command, Group
from fala.cli.names import Described, Named
from fala.cli.options import BUDGET, JSON, SECONDS
from fala.cli.progress_bars import device_progress, progress

__all__ = [
    "BUDGET",
    "JSON",
    "SECONDS",
    "SETTINGS",
    "Command",
    "Described",
    "Group",
    "Named",
    "device_progress",
    "progress",
]
