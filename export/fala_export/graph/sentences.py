"""Provide texts for measuring parity and others for calibration; they share no sentence."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from fala_export.base.errors import ExportError
from fala_export.rows.texts import text_lines


def parity_texts(path: Path | None) -> list[str]:
    """Return the texts to compare: a file's lines, or 192 texts of one to five sentences.

    Raises:
        ExportError: The file cannot be read, or has no text.
    """
    if path is None:  # They are as long as comments, headlines with a line below, and paragraphs.
        return _passages("parity.txt", (1, 2, 5))
    if texts := list(text_lines(path)):
        return texts
    raise ExportError(f"{path}: contains no text; add one text on each line")


def calibration_texts() -> list[str]:
    """Return 128 texts: each sentence alone, and with the two that follow it."""
    return _passages("calibration.txt", (1, 3))


def _passages(name: str, lengths: tuple[int, ...]) -> list[str]:
    """Return texts of some lengths in sentences, one starting at each sentence of a file."""
    file = resources.files("fala_export.graph") / name
    sentences = file.read_text(encoding="utf-8").splitlines()
    return [
        " ".join(sentences[(start + offset) % len(sentences)] for offset in range(length))
        for length in lengths
        for start in range(len(sentences))
    ]
