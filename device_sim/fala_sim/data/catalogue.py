"""All formats and all named data sets, found in the modules of ``formats``.

To add a data set, add a module to that folder with a reader, ``FORMATS`` and, for a named data set,
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
    """Return the data set with this name.

    Raises:
        DataError: There is no such data set; the error lists the known ones.
    """
    if name not in CATALOGUE:
        raise DataError(
            f"no data set {name!r}; one of {', '.join(CATALOGUE)}, or FORMAT:DIR with a format of "
            f"{', '.join(name for name, form in FORMATS.items() if form.files)}, or rows:FILE"
        )
    return CATALOGUE[name]
