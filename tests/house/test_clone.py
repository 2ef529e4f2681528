"""A clone needs nothing beside it: only .ci may look there."""

import re

from checkout import ROOT

#: Ways out of the checkout: to a folder beside it, and to somebody's own.
OUTSIDE = re.compile(r"\.\./\w|(?<![\w.])/(home|root|work|Users)/")

FOLDERS = ("sdk/fala", "export/fala_export", "device_sim/fala_sim", "benchmarks", "examples")
FILES = (
    "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "mkdocs.yml", "pyproject.toml",
    "conftest.py",
)  # fmt: skip


def texts():
    """What is read or run, and is no built-in model."""
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and path.suffix not in {".fala", ".pyc"}:
                yield path
    yield from (ROOT / name for name in FILES)


def test_nothing_names_a_folder_outside():
    assert [
        f"{path}:{number}"
        for path in texts()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if OUTSIDE.search(line)
    ] == []
