"""Finds data sets, methods and experiments in their folders, so that there is no list to edit."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType


def found(package: str, part: str = "") -> Iterator[ModuleType]:
    """Import the modules of a package.

    Args:
        package: Name of the package.
        part: If given, import only the module with this name from each inner package that has one;
            otherwise import the modules that are directly in the package.
    """
    for module in pkgutil.iter_modules(import_module(package).__path__, f"{package}."):
        if not part and not module.ispkg:
            yield import_module(module.name)
        elif part and module.ispkg and find_spec(f"{module.name}.{part}"):
            yield import_module(f"{module.name}.{part}")
