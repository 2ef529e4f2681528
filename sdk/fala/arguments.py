"""What an app passes to a device, checked before anything changes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from operator import index
from typing import SupportsIndex, TypeVar

from fala.bundle.manifest import PRODUCT
from fala.errors import BudgetError, DataError, shown
from fala.examples import fault
from fala.personal.budget import Budget, Progress
from fala.store.records import StoredExample
from fala.updates.limits import UpdateLimits

Item = TypeVar("Item")
Path = str | os.PathLike[str]
#: Files of adapters; by the names of their tasks, where those are not the bundles'.
NewAdapters = Iterable[Path] | Mapping[str, Path]


def path_of(value: str | os.PathLike[str], name: str) -> str:
    """A path as text.

    Raises:
        DataError: It is none; names the argument.
    """
    try:
        path = os.fspath(value)
    except TypeError as error:
        raise DataError(f"{name} is a path, not {shown(value)}") from error
    if not isinstance(path, str) or "\0" in path:
        raise DataError(f"{name} is a path, not {shown(value)}")
    return path


def budget_of(value: Budget | None) -> Budget:
    """A budget, or the default.

    Raises:
        BudgetError: It is none.
    """
    if value is None:
        return Budget()
    if not isinstance(value, Budget):
        raise BudgetError(
            f"budget is a fala.Budget, as Budget(forward_passes=50), not {shown(value)}"
        )
    return value


def progress_of(value: Progress | None) -> Progress | None:
    """A function of progress, or None.

    Raises:
        DataError: It cannot be called.
    """
    if value is not None and not callable(value):
        raise DataError(f"progress is a function of (stage, done, total), not {shown(value)}")
    return value


def name_of(value: str, name: str) -> str:
    """A text that is not blank.

    Raises:
        DataError: It is none; names the argument.
    """
    if (why := fault(value)) or not value.strip():
        raise DataError(f"{name} {why or 'is blank'}")
    return value


def adapter_name(value: str) -> str:
    """An adapter's name.

    Raises:
        DataError: It is none.
    """
    if not isinstance(value, str) or not PRODUCT.fullmatch(value):
        raise DataError(f"an adapter's name is of a-z, 0-9, - and _, not {shown(value)}")
    return value


def adapters_of(values: NewAdapters) -> list[str] | dict[str, str]:
    """Adapters' files, or files by the names of their tasks.

    Raises:
        DataError: They are none.
    """
    if isinstance(values, Mapping):
        return {adapter_name(name): path_of(file, "adapters") for name, file in values.items()}
    return [path_of(file, "adapters") for file in listed(values, "adapters")]


def limits_of(value: UpdateLimits | None) -> UpdateLimits:
    """An update's limits, or the defaults.

    Raises:
        BudgetError: They are none.
    """
    if value is None:
        return UpdateLimits()
    if not isinstance(value, UpdateLimits):
        raise BudgetError(f"limits are a fala.UpdateLimits, not {shown(value)}")
    return value


def product_of(value: str | None) -> str | None:
    """A product's name, or None.

    Raises:
        DataError: It is none.
    """
    if value is not None and not (isinstance(value, str) and PRODUCT.fullmatch(value)):
        raise DataError(f"product is a name of a-z, 0-9, - and _, not {shown(value)}")
    return value


def listed(values: Iterable[Item], name: str) -> list[Item]:
    """Values as a list; any iterable is read once.

    Raises:
        DataError: They are none, or one text; names the argument.
    """
    if isinstance(values, str | bytes):
        raise DataError(f"{name} are a sequence, not one text")
    try:
        return list(values)
    except TypeError as error:
        raise DataError(f"{name} are a sequence, not {shown(values)}") from error


def ids_where(
    ids: Iterable[int] | None,
    where: Callable[[StoredExample], object] | None,
    examples: Callable[[], Iterable[StoredExample]],
) -> list[int]:
    """Ids of examples, which are given, or of those for which a condition holds.

    Raises:
        DataError: They are none, the condition cannot be called, or not one of both is given.
    """
    if (ids is None) == (where is None):
        raise DataError("give either the examples' ids, or where=, a function of an example")
    if where is None:
        return ids_of([] if ids is None else ids)
    if not callable(where):
        raise DataError(f"where is a function of a StoredExample, not {shown(where)}")
    return [row.id for row in examples() if where(row)]


def ids_of(values: Iterable[int]) -> list[int]:
    """Ids of examples, of Python's whole numbers or NumPy's.

    Raises:
        DataError: One is no whole number.
    """
    wanted: list[int] = []
    for value in listed(values, "ids"):
        if isinstance(value, bool) or not isinstance(value, SupportsIndex):
            raise DataError(f"an example's id is a whole number, not {shown(value)}")
        wanted.append(index(value))
    return wanted
