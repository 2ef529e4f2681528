"""Which module of the exporter may know which: no circles, and of ``fala`` only its doors."""

import ast
from graphlib import CycleError, TopologicalSorter

import pytest

from checkout import ROOT

PACKAGE = "fala_export"
FOLDER = ROOT / "export"
VENDOR = ROOT / "sdk" / "fala" / "vendor"
DOORS = {"fala", "fala.vendor", *(f"fala.vendor.{path.stem}" for path in VENDOR.glob("[!_]*.py"))}
RECIPES = sorted((ROOT / "recipes").glob("*.py"))


def module_name(path):
    parts = path.relative_to(FOLDER).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(FOLDER.rglob("*.py"))}


def imported(tree):
    """Everything that a module imports: in its functions, and for types alone, too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in MODULES else node.module


def room(module):
    """The part below the package: a folder, or a module that stands alone."""
    return ".".join(module.split(".")[:2])


def circle(edges):
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        return error.args[1]
    return None


@pytest.fixture(scope="module")
def edges():
    return {
        name: set(imported(ast.parse(path.read_text(encoding="utf-8"))))
        for name, path in MODULES.items()
    }


def test_no_modules_import_each_other_in_a_circle(edges):
    assert circle({"a": {"b"}, "b": {"a"}})
    assert circle({name: wanted & MODULES.keys() for name, wanted in edges.items()}) is None


def test_no_rooms_import_each_other_in_a_circle(edges):
    rooms = {}
    for name, wanted in edges.items():
        inside = {room(module) for module in wanted & MODULES.keys()}
        rooms.setdefault(room(name), set()).update(inside - {room(name)})
    assert circle(rooms) is None


def test_only_the_doors_of_the_device_are_used(edges):
    assert RECIPES
    used = {module for wanted in edges.values() for module in wanted}
    for path in RECIPES:
        used.update(imported(ast.parse(path.read_text(encoding="utf-8"))))
    assert {module for module in used if module.partition(".")[0] == "fala"} <= DOORS
