"""Where things lie: this checkout, and the folder of real data where there is one."""

import functools
import os
from pathlib import Path
from types import CodeType, FunctionType

import pytest

ROOT = Path(__file__).parents[2]
SUPPORT = Path(__file__).parent

needs_records = pytest.mark.skipif(
    not list(ROOT.glob("device_sim/results/*/records.jsonl.gz")),
    reason="a source archive leaves out the records",
)

#: The marks of the test that runs.
marks: set[str] = set()


def python_files(folder):
    """Return the Python files of a folder, which has some."""
    files = sorted(folder.rglob("*.py"))
    if not files:
        raise ValueError(f"{folder}: no Python file")
    return files


def real_data(*parts):
    """A file or folder of the real data sets; skips the test without it.

    Tests that call this, by their own functions or fixtures, are marked ``real_data``.
    """
    if "real_data" not in marks:
        raise LookupError("real data is asked for where the mark's search does not see it")
    named = os.environ.get("FALA_DATA")
    path = Path(named or os.devnull, *parts)
    if not named or not path.exists():
        pytest.skip(f"real data: FALA_DATA names no folder with {'/'.join(parts)}")
    return path


@functools.cache
def names_used(functions):
    """The names that some functions use, and those of the tests' own that they call."""
    names, seen, waiting = set(), set(), list(functions)
    while waiting:
        function = waiting.pop()
        if not isinstance(function, FunctionType) or function in seen:
            continue
        seen.add(function)
        if not function.__code__.co_filename.startswith(str(SUPPORT.parent)):
            continue
        for name in _names(function.__code__):
            names.add(name)
            waiting.append(function.__globals__.get(name))
    return names


def _names(code):
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)
