"""Texts to measure parity on, and others to calibrate on: no sentence is in both."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from fala_export.base.errors import ExportError
from fala_export.rows.texts import text_lines


def parity_texts(path: Path | None) -> list[str]:
    """The texts to compare on: a file's lines, or 192 texts of one to five sentences.

    Raises:
        ExportError: The file cannot be read, or has no text.
    """
    if path is None:  # as long as comments, headlines with a line below, paragraphs
        return _passages("parity.txt", (1, 2, 5))
    if texts := list(text_lines(path)):
        return texts
    raise ExportError(f"{path}: no text in it")


def calibration_texts() -> list[str]:
    """128 texts: each sentence alone, and with the two that follow it."""
    return _passages("calibration.txt", (1, 3))


def _passages(name: str, lengths: tuple[int, ...]) -> list[str]:
    """Texts of some lengths in sentences, from each sentence of a file on."""
    file = resources.files("fala_export.graph") / name
    sentences = file.read_text(encoding="utf-8").splitlines()
    return [
        " ".join(sentences[(start + offset) % len(sentences)] for offset in range(length))
        for length in lengths
        for start in range(len(sentences))
    ]
