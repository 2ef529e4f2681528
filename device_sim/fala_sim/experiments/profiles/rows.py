"""One user's examples and labels, as a file that the limited process reads."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from fala import Match
from fala_sim.situation import Example


def write_rows(path: Path, examples: Sequence[Example], labels: Sequence[str]) -> Path:
    """Write n train examples with their n labels.

    Returns:
        The path.
    """
    rows = [
        example
        if isinstance(example, str)
        else {"history": example.history, "candidate": example.candidate}
        for example in examples
    ]
    text = json.dumps({"examples": rows, "labels": list(labels)})
    path.write_text(text, encoding="utf-8")
    return path


def read_rows(path: Path) -> tuple[list[Example], list[str]]:
    """Read what ``write_rows`` wrote."""
    content = json.loads(path.read_text(encoding="utf-8"))
    examples: list[Example] = [
        row if isinstance(row, str) else Match(tuple(row["history"]), row["candidate"])
        for row in content["examples"]
    ]
    return examples, content["labels"]
