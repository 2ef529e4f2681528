"""The checkout is self-contained, its files are short, and public names are documented."""

import re

import pytest

import checkout
import fala
import fala.base.errors
from checkout import ROOT, names_used, python_files

#: Paths outside the checkout: a parent folder, or a user's folder.
OUTSIDE = re.compile(r"\.\./\w|(?<![\w.])/(home|root|work|Users)/")

FOLDERS = (
    "sdk/fala", "export/fala_export", "device_sim/fala_sim", "device_sim/studies", "benchmarks",
    "examples",
)  # fmt: skip
FILES = (
    "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "mkdocs.yml", "pyproject.toml",
    "conftest.py",
)  # fmt: skip

#: The most lines of a file.
LIMITS = {"tests": 500, "sdk": 600, "export": 600, "device_sim": 450, "benchmarks": 450}

#: Longer files and their limits. Remove an entry with its cause.
KNOWN = {"sdk/fala/device.py": 1365}  # the public class: most of it is docstrings, with examples


def texts():
    """Files that are read or run, without built-in models."""
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and path.suffix not in {".fala", ".gz", ".pyc"}:
                yield path
    yield from (ROOT / name for name in FILES)


def test_no_file_names_a_folder_outside_the_checkout():
    assert [
        f"{path}:{number}"
        for path in texts()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if OUTSIDE.search(line)
    ] == []


def test_no_file_is_too_long():
    lines = {
        file.relative_to(ROOT).as_posix(): len(file.read_text(encoding="utf-8").splitlines())
        for folder in LIMITS
        for file in python_files(ROOT / folder)
    }
    limits = {name: KNOWN.get(name, LIMITS[name.split("/")[0]]) for name in lines}
    assert {name: count for name, count in lines.items() if count > limits[name]} == {}


def test_every_public_name_is_documented_and_every_error_is_falas():
    """Type aliases (``Example``, ``Progress``) have no docstring."""
    for name in set(fala.__all__) - {"Example", "Progress"}:
        assert getattr(fala, name).__doc__
        assert not name.endswith("Error") or issubclass(getattr(fala, name), fala.FalaError)


def test_every_error_is_a_public_name():
    errors = {name for name in vars(fala.base.errors) if name.endswith("Error")}
    assert errors - set(fala.__all__) == set()


# The mark of tests on real data


def helper():
    return [checkout.real_data(name) for name in ("movielens-small", "hs-brexit")]


def calls_a_helper():
    return helper()


def test_a_call_for_real_data_is_found_directly_and_behind_a_function():
    assert "real_data" in names_used((calls_a_helper,))
    assert "real_data" not in names_used((texts,))


def test_a_hidden_call_for_real_data_is_an_error():
    with pytest.raises(LookupError, match="does not see"):
        getattr(checkout, "real" + "_data")("hs-brexit")
