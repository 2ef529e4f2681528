"""Define the exporter's own errors, under ``fala.FalaError``.

FalaError
├── DataError
│   └── RowError                one bad row of a data file; names its line
└── ExportError                 a model that cannot be turned into a bundle
"""

from __future__ import annotations

from fala.base.errors import DataError, FalaError


class RowError(DataError):
    """A row of a data file cannot be used.

    Attributes:
        line: Line number in the file, counted from 1; for a table without lines, the row's number.
        reason: What is wrong.
        file: The file's name; empty if it is not known.
        unit: What ``line`` counts, ``"line"`` or ``"row"``.
    """

    def __init__(self, line: int, reason: str, file: str = "", unit: str = "line") -> None:
        super().__init__(f"{file}, {unit} {line}: {reason}".removeprefix(", "))
        self.line, self.reason, self.file, self.unit = line, reason, file, unit


class ExportError(FalaError):
    """A model or file cannot be turned into a bundle."""
