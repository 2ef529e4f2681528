"""The exporter's own errors, under ``fala.FalaError``.

FalaError
├── DataError
│   └── RowError                one bad row of a data file; names its line
└── ExportError                 a model that cannot be turned into a bundle
"""

from __future__ import annotations

from fala.errors import DataError, FalaError


class RowError(DataError):
    """One row of a data file cannot be used.

    Attributes:
        line: Line number in the file, counted from 1.
    """

    def __init__(self, line: int, message: str) -> None:
        super().__init__(f"line {line}: {message}")
        self.line = line


class ExportError(FalaError):
    """A model or file cannot be turned into a bundle."""
