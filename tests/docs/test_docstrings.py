"""The examples in the docstrings of the public door run, and print what stands below them."""

import doctest
import inspect

import numpy as np
import pytest

import fala

#: Methods that take more than a few lines to show, and the pages whose snippets show them.
ON_PAGES = {
    "adapter": "tasks.md",
    "delete_adapter": "tasks.md",
    "load_adapter": "tasks.md",
    "rotate_key": "privacy.md",
    "update": "updates.md",
}

#: Types of which an app makes objects.
MADE = {"Budget", "Bundle", "Device", "Item", "Match", "Pair"}

_OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def with_examples():
    """The functions, the types that an app makes, and the methods of a device."""
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
    names = {"fala": fala, "np": np}
    if name.startswith("Device."):
        run("Device", names)  # their examples go on with the class's
    run(name, names)
    if "device" in names:
        names["device"].close()
