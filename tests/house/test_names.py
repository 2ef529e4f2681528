"""A public name is defined in one module: a reader who meets it knows what it is."""

import ast
import re
from collections import defaultdict

from checkout import ROOT

PACKAGES = ("sdk", "export", "device_sim")

#: Names that a command, a plug-in or the registry is found by, in whatever module it stands.
FOUND_BY_NAME = {"command", "main", "run"}

#: Names that are left: apps' tests import ``counted`` from ``fala.testing``, where it counts
#: operations of a disk; the base's puts a number before a noun. None comes.
REMAINING = {"counted"}


def is_command(node):
    """Whether a function is a command of click, whose name is that of the command line."""
    return any("command" in ast.unparse(each) for each in node.decorator_list)


def is_alias(node):
    """Whether an assignment names a type, such as ``Vectors = NDArray[np.float32]``."""
    if isinstance(node, ast.AnnAssign):
        return ast.unparse(node.annotation) == "TypeAlias"
    name, value = ast.unparse(node.targets[0]), ast.unparse(node.value)
    return name.isidentifier() and re.match("[A-Z][a-z]", name) and "TypeVar(" not in value


def defined(path):
    """The public classes, functions and aliases of types that a module defines."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef) or (
            isinstance(node, ast.FunctionDef) and not is_command(node)
        ):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign) and is_alias(node):
            yield ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)


def test_a_public_name_is_defined_in_one_module():
    modules = defaultdict(set)
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            for name in defined(path):
                modules[name].add(path.relative_to(ROOT).as_posix())
    several = {
        name: sorted(paths)
        for name, paths in modules.items()
        if len(paths) > 1 and not name.startswith("_") and name not in FOUND_BY_NAME
    }
    more = [f"{name}: {', '.join(several[name])}" for name in several.keys() - REMAINING]
    assert not more, "give one of them another name"
    assert not (gone := REMAINING - several.keys()), f"take them from the list: {gone}"
