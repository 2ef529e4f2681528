"""The app without its window: a device in the app's folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import fala
import fala_sim

#: Posts to label, all made up.
POSTS = (
    "What a lovely film about the match.",
    "You absolute clown, nobody asked you.",
    "My neighbour brought soup from the market.",
    "Garbage. The author is a liar.",
    "Thank you for the tickets, see you on Monday!",
    "Shut up and go home, idiot.",
    "The library opens at nine.",
    "What a pathetic, stupid answer.",
)

#: A post's label: to this user it is fine, or unwelcome.
FINE, UNWELCOME = 0, 1


class Personal:
    """This user's model.

    Args:
        folder: The app's folder for data; created if it does not exist.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / "device"
        if path.exists():
            self.device = fala.Device.open(path)
        else:
            folder.mkdir(parents=True, exist_ok=True)
            self.device = fala.Device.create(path, fala_sim.sample_release("glove"))

    def label(self, post: str, label: int) -> None:
        """Learn a label; it is on the disk before the fit."""
        self.device.learn([post], [label])

    def labels(self) -> dict[str, int | None]:
        """The user's labels by post, the last first."""
        return {str(row.example): row.label for row in reversed(list(self.device.examples()))}

    def unwelcome(self, posts: list[str]) -> list[float]:
        """The probability that each post is unwelcome to this user."""
        return [float(row[1]) for row in self.device.predict_proba(posts)]

    def replace(self, progress: Callable[[str, int, int], object]) -> fala.Report:
        """Install the vendor's new backbone; ``progress`` returns False to stop it."""
        return self.device.replace(fala_sim.sample_release("bert"), progress=progress)


def storage() -> Path:
    """The app's folder: the phone's, or the one named on the command line."""
    folder = os.environ.get("FLET_APP_STORAGE_DATA")
    return Path(folder or (sys.argv[1] if len(sys.argv) > 1 else "storage"))
