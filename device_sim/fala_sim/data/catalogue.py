"""All formats and all named data sets, found in the modules of ``formats``.

A new data set is a module of that folder: a reader, with ``FORMATS`` and, for a named one,
``DATA_SETS``.
"""

from __future__ import annotations

from fala import DataError
from fala_sim.data.format import DataSet, Format
from fala_sim.data.found import found

_MODULES = list(found("fala_sim.data.formats"))

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
