"""Imports of Python files, read from their source without running it.

Imports inside functions and under ``TYPE_CHECKING`` count like any other.
"""

import ast
import functools
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Import:
    """One imported module, or one name out of it."""

    file: Path
    line: int
    module: str  # "fala.bundle" in `from fala.bundle import format`
    name: str | None  # "words" there, None in `import fala.bundle`

    @property
    def package(self):
        return self.module.partition(".")[0]

    def __str__(self):
        statement = f"import {self.module}"
        if self.name is not None:
            statement = f"from {self.module} import {self.name}"
        return f"{self.file}:{self.line}: {statement}"


@functools.cache
def nodes_of(file):
    """The nodes of a file's syntax tree that are imports or attributes."""
    kinds = ast.Import, ast.ImportFrom, ast.Attribute
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return [node for node in ast.walk(tree) if isinstance(node, kinds)]


def imports_of(file):
    """Every import of a file; a relative import is an error."""
    for node in nodes_of(file):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(file, node.lineno, alias.name, None)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                raise ValueError(f"{file}:{node.lineno}: a relative import")
            for alias in node.names:
                yield Import(file, node.lineno, node.module, alias.name)


def attributes_of(file, module):
    """Attributes of a module that a file uses: ``Device`` in ``fala.Device``."""
    for node in nodes_of(file):
        match node:
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner == module:
                yield name


def python_files(folder):
    files = sorted(folder.rglob("*.py"))
    if not files:
        raise ValueError(f"{folder}: no Python file")
    return files


def modules_of(package):
    """A package's files by the names of their modules, its folder given."""
    by_module = {}
    for file in python_files(package):
        parts = file.relative_to(package.parent).with_suffix("").parts
        by_module[".".join(part for part in parts if part != "__init__")] = file
    return by_module


def room_of(module):
    """The subpackage of a module; "" is the package itself."""
    return module.split(".")[1] if "." in module else ""
