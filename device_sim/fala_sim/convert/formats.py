"""All formats and all named data sets, collected from the modules here.

A new data set is a module of this folder: a reader, with ``FORMATS`` and, for a named one,
``DATA_SETS``.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

from fala import DataError
from fala_sim import convert
from fala_sim.convert.format import DataSet, Format

_MODULES = [
    import_module(module.name)
    for module in pkgutil.iter_modules(convert.__path__, f"{convert.__name__}.")
    if module.name not in (__name__, f"{convert.__name__}.commands")
]

#: Every format, by name.
FORMATS: dict[str, Format] = {
    name: form for module in _MODULES for name, form in getattr(module, "FORMATS", {}).items()
}

#: Every named data set.
CATALOGUE: dict[str, DataSet] = {
    each.name: each for module in _MODULES for each in getattr(module, "DATA_SETS", ())
}


def find_data_set(name: str) -> DataSet:
    """A data set by name.

    Raises:
        DataError: If there is none; lists the known ones.
    """
    if name not in CATALOGUE:
        raise DataError(
            f"no data set {name!r}; one of {', '.join(CATALOGUE)}, or FORMAT:DIR with a format of "
            f"{', '.join(name for name, form in FORMATS.items() if form.files)}, or rows:FILE"
        )
    return CATALOGUE[name]
