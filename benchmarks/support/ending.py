"""How the benchmarks that look for what is wrong end."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any, NoReturn

import click


def end(record: Mapping[str, Any], *, as_json: bool, width: int = 16) -> NoReturn:
    """Print a record, and fail where its ``wrong`` is not 0.

    Args:
        record: The figures.
        as_json: Whether they are one JSON object.
        width: Of the names' column, else.
    """
    if as_json:
        click.echo(json.dumps(record))
    else:
        for name, value in record.items():
            click.echo(f"{name.replace('_', ' '):{width}} {value}")
    sys.exit(1 if record["wrong"] else 0)
