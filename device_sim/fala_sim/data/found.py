"""Data sets, methods and experiments are found by being there, without a list to edit."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType


def found(package: str, part: str = "") -> Iterator[ModuleType]:
    """Import the modules of a package.

    Args:
        package: Its name.
        part: If named, only the module of this name of each inner package that has one; else only
            the modules that stand in the package itself.
    """
    for module in pkgutil.iter_modules(import_module(package).__path__, f"{package}."):
        if not part and not module.ispkg:
            yield import_module(module.name)
        elif part and module.ispkg and find_spec(f"{module.name}.{part}"):
            yield import_module(f"{module.name}.{part}")
