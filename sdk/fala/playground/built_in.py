"""The small models that come with the package: for the demo, the examples and the laboratory."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

#: What there is, for lists.
BUILT_IN = {
    "glove": "15,000 word vectors of 100 dimensions",
    "bert": "a transformer of 3 layers and 256 dimensions, in int8",
}


def built_in() -> dict[str, Path]:
    """The built-in backbones' bundles by name, ``"bert"`` and ``"glove"``; without heads."""
    folder = Path(str(resources.files("fala.playground") / "builtin"))
    return {file.stem: file for file in sorted(folder.glob("*.fala"))}
