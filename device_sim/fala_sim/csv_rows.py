"""Reads CSV files of the package."""

from __future__ import annotations

import csv
from importlib import resources


def csv_rows(package: str | None, name: str) -> list[dict[str, str]]:
    """The rows of a package's CSV file, by column.

    Args:
        package: The package that contains the file.
        name: The file's name.
    """
    text = resources.files(package or "").joinpath(name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))
