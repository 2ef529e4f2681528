"""Examples in public docstrings run, and print their documented output."""

import doctest
import inspect

import numpy as np
import pytest

import fala
import fala_sim

#: Methods with longer examples, and the pages that have them.
ON_PAGES = {
    "delete_adapter": "labels.md",
    "load_adapter": "labels.md",
    "rotate_key": "folder.md",
    "update": "updates.md",
}

#: Types that an app instantiates.
MADE = {"Budget", "Bundle", "Device", "Item", "Match", "Pair"}

_OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def with_examples():
    """Public functions, types that an app instantiates, and methods of a device."""
    functions = {name for name in fala.__all__ if inspect.isfunction(getattr(fala, name))}
    methods = {
        f"Device.{name}"
        for name, member in vars(fala.Device).items()
        if not name.startswith("_") and not isinstance(member, property)
    }
    return sorted((functions | MADE | methods) - {f"Device.{name}" for name in ON_PAGES})


def run(name, names):
    """Run the examples of a docstring; the names that they define go to ``names``."""
    shown = fala
    for part in name.split("."):
        shown = getattr(shown, part)
    test = doctest.DocTestParser().get_doctest(shown.__doc__, names, name, None, None)
    assert test.examples, f"{name} has no example"
    test.globs = names  # the parser has made a copy
    printed = []
    result = doctest.DocTestRunner(optionflags=_OPTIONS).run(
        test, out=printed.append, clear_globs=False
    )
    assert not result.failed, "".join(printed)


@pytest.mark.parametrize("name", with_examples())
def test_an_example_prints_its_documented_output(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"fala": fala, "fala_sim": fala_sim, "np": np}
    if name.startswith("Device."):
        run("Device", names)  # their examples continue the class's
    run(name, names)
    if "device" in names:
        names["device"].close()
