"""What Python files import, read from their source: nothing is run, and nothing stays hidden.

Imports inside functions and under ``TYPE_CHECKING`` count like any other.
"""

import ast
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Import:
    """One imported module, or one name out of it."""

    file: Path
    line: int
    module: str  # "fala.release" in `from fala.release import words`
    name: str | None  # "words" there, None in `import fala.release`

    @property
    def package(self):
        return self.module.partition(".")[0]

    def __str__(self):
        what = f"import {self.module}"
        if self.name is not None:
            what = f"from {self.module} import {self.name}"
        return f"{self.file}:{self.line}: {what}"


def imports_of(file):
    """Every import of a file; a relative one is a mistake."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(file, node.lineno, alias.name, None)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                raise ValueError(f"{file}:{node.lineno}: a relative import")
            for alias in node.names:
                yield Import(file, node.lineno, node.module, alias.name)


def attributes_of(file, module):
    """Names that a file takes from a module by a dot: ``Device`` in ``fala.Device``."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        match node:
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner == module:
                yield name


def python_files(folder):
    found = sorted(folder.rglob("*.py"))
    if not found:
        raise ValueError(f"{folder}: no Python file")
    return found


def modules_of(package):
    """A package's files by the names of their modules, its folder given."""
    named = {}
    for file in python_files(package):
        parts = file.relative_to(package.parent).with_suffix("").parts
        named[".".join(part for part in parts if part != "__init__")] = file
    return named


def arrows_of(package):
    """Which of a package's own modules each of its modules imports."""
    modules = modules_of(package)
    arrows = {}
    for module, file in modules.items():
        wanted = {
            submodule if (submodule := f"{used.module}.{used.name}") in modules else used.module
            for used in imports_of(file)
        }
        arrows[module] = {name for name in wanted if name in modules and name != module}
    return arrows


def room_of(module):
    """The part of its package that a module lies in; "" is the package's door."""
    return module.split(".")[1] if "." in module else ""


def arrows_of_rooms(arrows):
    """The arrows of modules as arrows of the rooms that they lie in."""
    rooms = {room_of(module): set() for module in arrows}
    for module, targets in arrows.items():
        rooms[room_of(module)] |= {room_of(target) for target in targets} - {room_of(module)}
    return rooms


def circles(arrows):
    """Groups of names each of which leads to all the others, sorted."""
    reached = {start: _reached(start, arrows) for start in arrows}
    found = {
        tuple(sorted(name for name in reached[start] if start in reached[name]))
        for start in arrows
        if start in reached[start]
    }
    return sorted(found)


def _reached(start, arrows):
    seen, waiting = set(), [start]
    while waiting:
        new = arrows[waiting.pop()] - seen
        seen |= new
        waiting.extend(new)
    return seen
