"""Data that lie as CSV files beside the modules that read them."""

from __future__ import annotations

import csv
from importlib import resources


def csv_rows(package: str | None, name: str) -> list[dict[str, str]]:
    """The rows of a package's CSV file, by column.

    Args:
        package: That of the file.
        name: Of the file.
    """
    text = resources.files(package or "").joinpath(name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))
