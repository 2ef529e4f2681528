"""What an app passes to a device, checked before anything changes."""

from __future__ import annotations

import os
from collections.abc import Iterable
from operator import index
from typing import SupportsIndex, TypeVar

from fala.bundle.manifest import PRODUCT
from fala.errors import BudgetError, DataError, shown
from fala.replacement.budget import Budget, Follower, Progress
from fala.updates.limits import UpdateLimits

Item = TypeVar("Item")


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


def follower_of(progress: Progress | None) -> Follower:
    """What tells the app of progress.

    Raises:
        DataError: It cannot be called.
    """
    if progress is not None and not callable(progress):
        raise DataError(f"progress is a function of (stage, done, total), not {shown(progress)}")
    return Follower(progress)


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
