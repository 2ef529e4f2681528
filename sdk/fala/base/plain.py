"""The base of all reports: plain values for JSON, sentences, and a table in a notebook."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from html import escape
from typing import Any, ClassVar

import numpy as np


@dataclass(frozen=True)
class Plain:
    """The base of all reports: plain values for JSON, and a table in a notebook.

    Printing the report that an operation returns tells what it did; ``repr`` shows its data.
    """

    #: Names of properties that are among the plain values beside the fields.
    _derived: ClassVar[tuple[str, ...]] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values, for JSON."""
        names = (*(each.name for each in fields(self)), *self._derived)
        return {name: plain(getattr(self, name)) for name in names}

    def __str__(self) -> str:
        return self.summary or repr(self)

    @property
    def summary(self) -> str:
        """What was done, in two or three sentences; empty for a part of a report."""
        return ""

    def _repr_html_(self) -> str:
        cells = "".join(
            f"<tr><th>{name}</th><td>{escape(str(value))}</td></tr>"
            for name, value in vars(self).items()
        )
        return f"<table>{cells}</table>"


def plain(value: object) -> Any:  # noqa: ANN401 - any of JSON's values
    """Return a report's value in the form that JSON has for it."""
    if isinstance(value, Plain):
        return value.to_dict()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, tuple | list):
        return [plain(each) for each in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    return value
