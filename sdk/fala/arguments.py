"""The arguments of the device's methods, checked before anything changes."""

from __future__ import annotations

import contextlib
import inspect
import math
import os
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import index
from typing import SupportsIndex, TypeVar, cast, get_args

from fala.base.errors import (
    BudgetError,
    DataError,
    DeviceError,
    UnknownLabelError,
    UsageError,
    check_flag,
    check_word,
    counted,
    shown,
    type_of,
)
from fala.base.examples import (
    MATCHING,
    Example,
    Match,
    check_examples,
    check_not_blank,
    fault,
    items_of,
    listed,
)
from fala.base.files import check_path
from fala.bundle.manifest import PRODUCT
from fala.model.heads import Head
from fala.model.labels import (
    HeadLabel,
    Label,
    OneLabel,
    named,
    number_of,
)
from fala.personal.compare import Accept
from fala.personal.replace import Terms
from fala.personal.run import Budget, Progress
from fala.slots.admit import Signed
from fala.slots.folder import Snapshot
from fala.slots.snapshot import Release
from fala.store.examples import StoredExample
from fala.updates.limits import UpdateLimits

Function = TypeVar("Function", bound=Callable[..., object])

Path = str | os.PathLike[str]
#: The adapters' files; by task name, where that differs from the bundle's name.
NewAdapters = Iterable[Path] | Mapping[str, Path]


def check_folder(value: str | os.PathLike[str]) -> pathlib.Path:
    """A device's folder as an absolute path, as the working directory may change.

    Raises:
        DataError: It is no path.
        DeviceError: It is relative to a working directory that is deleted.
    """
    folder = check_path(value, "path")
    try:
        return folder.absolute()
    except OSError as error:
        raise DeviceError(f"{folder}: the working directory is gone: {error.strerror}") from error


def check_budget(value: Budget | None) -> Budget:
    """A budget, or the default.

    Raises:
        BudgetError: It is no budget.
    """
    if value is None:
        return Budget()
    if not isinstance(value, Budget):
        raise BudgetError(
            f"budget is a fala.Budget, as Budget(forward_passes=50), not {shown(value)}"
        )
    return value


def check_progress(value: Progress | None) -> Progress | None:
    """A progress function, or None.

    Raises:
        DataError: It cannot be called.
        UsageError: It cannot be called with three arguments.
    """
    names = ("stage", "done", "total")
    return None if value is None else _check_function(value, "progress", names)


def _check_function(value: Function | None, name: str, of: tuple[str, ...]) -> Function:
    """A function of the app's.

    Args:
        value: The function.
        name: The argument's name.
        of: The function's own arguments.

    Raises:
        DataError: It cannot be called.
        UsageError: It cannot be called with these arguments.
    """
    usual = f"{name} is a function of ({', '.join(of)})"
    if not callable(value):
        raise DataError(f"{usual}, not {shown(value)}")
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):  # of a function in C, for example: the first call checks it
        return value
    with contextlib.suppress(TypeError):
        signature.bind(*of)
        return value
    # Not the signature itself: a default may be a text of the user.
    raise UsageError(f"{usual}, and this one is of ({', '.join(signature.parameters)})")


def check_terms(
    accept: Accept, origin: Signed, adapters: NewAdapters, *, allow_older: bool
) -> Terms:
    """The terms of a release's installation.

    Raises:
        DataError: One of them is invalid.
    """
    accepted = cast(Accept, check_word(accept, get_args(Accept), "accept"))
    older = check_flag(allow_older, "allow_older")
    return Terms(accepted, origin, older, check_adapters(adapters))


def check_name(value: str, name: str) -> str:
    """A text that is not blank.

    Raises:
        DataError: It is not such a text; names the argument.
    """
    if (problem := fault(value)) or not value.strip():
        raise DataError(f"{name} {problem or 'is blank'}")
    return value


def check_adapter_name(value: str) -> str:
    """An adapter's name.

    Raises:
        DataError: It is invalid.
    """
    if not isinstance(value, str) or not PRODUCT.fullmatch(value):
        raise DataError(f"an adapter's name is of a-z, 0-9, - and _, not {shown(value)}")
    return value


def check_adapters(values: NewAdapters) -> list[pathlib.Path] | dict[str, pathlib.Path]:
    """Adapters' files, or files by the names of their tasks.

    Raises:
        DataError: They are not such files.
    """
    if isinstance(values, Mapping):
        return {
            check_adapter_name(name): check_path(file, "adapters") for name, file in values.items()
        }
    return [check_path(file, "adapters") for file in listed(values, "adapters", ordered=False)]


def check_items(examples: Iterable[Example], release: Release) -> None:
    """Check that the items among some examples fit the active release.

    Raises:
        DataError: It reads texts alone, or its embeddings have another length.
    """
    items = items_of(examples)
    if not items:
        return
    bundle, name = release.bundle, release.name
    if not bundle.external:
        raise DataError(
            f"{name} reads texts; a fala.Item is for a release with the app's own encoder"
        )
    if release.head.lexical is not None:
        raise DataError(
            f"{name} has words, which a fala.Item has not; a device of your own items is created "
            "with dimension="
        )
    encoders = {None, bundle.encoder}
    for item in items:
        if item.encoder in encoders:
            item.check(bundle.manifest.dimension)


def check_labelled(
    snapshot: Snapshot, examples: Iterable[Example], labels: Iterable[Label] | None
) -> tuple[list[Example], list[str | None]]:
    """Examples, and their labels as a store keeps them.

    Args:
        snapshot: The task.
        examples: See ``Device.learn``.
        labels: See ``Device.learn``.

    Raises:
        DataError: An example or a label cannot be used.
    """
    head = snapshot.head
    checked = check_examples(examples, head.task)
    check_not_blank(checked)
    check_items(checked, snapshot.release)
    values: Sequence[Label] = [None] * len(checked)
    if labels is not None:
        values = listed(labels, "labels")
    if len(values) != len(checked):
        raise DataError(f"{counted(len(checked), 'example')}, but {counted(len(values), 'label')}")
    try:
        head.label_shares(values)
    except UnknownLabelError as error:
        if not snapshot.release.own:
            raise
        raise UnknownLabelError(f"{error}; device.add_labels([...]) adds labels") from None
    return checked, head.link.as_stored(values, head.labels)


def check_candidates(values: Iterable[str], history: Iterable[str], task: str) -> list[Example]:
    """The examples of candidates to be ranked.

    Args:
        values: n texts or items.
        history: For a matcher, the texts that the user opened.
        task: The model's.

    Raises:
        DataError: One is not a text, or there is a history for a classifier.
    """
    candidates, opened = listed(values, "candidates"), tuple(listed(history, "history"))
    if task == MATCHING:
        return check_examples([Match(opened, candidate) for candidate in candidates], task)
    if opened:
        raise DataError("a classifier takes no history: it ranks the candidates by themselves")
    return check_examples(candidates, task)


def label_to_rank(value: OneLabel | None, head: Head, positive: HeadLabel | None) -> int:
    """Position of the label whose probability ranks.

    Args:
        value: The app's argument; None takes ``positive``, or the only label.
        head: The model's head.
        positive: See ``Device.positive``.

    Raises:
        DataError: It is not one of the labels, or is missing where none is positive.
    """
    if value is not None:
        positive = head.label_of(value, "label")
    elif len(head.labels) == 1:  # a rating, or one tag
        (positive,) = head.labels
    if positive is None:
        raise DataError(
            "candidates are ranked by a label's probability: pass label=, one of "
            f"{named(head.labels)}"
        )
    return head.labels.index(positive)


def check_threshold(value: float) -> float:
    """Return a probability.

    Raises:
        DataError: It is not a number from 0 to 1.
    """
    number = math.nan if isinstance(value, str) else number_of(value)
    if not 0 <= number <= 1:
        raise DataError(f"threshold is a probability from 0 to 1, not {shown(value)}")
    return number


def positive_of_two(snapshot: Snapshot) -> HeadLabel:
    """Return the positive one of a task's two labels.

    Raises:
        DataError: The task has other than two labels that exclude one another.
    """
    head = snapshot.head
    head.check_exclusive("threshold")
    if len(head.labels) != 2 or snapshot.positive is None:
        raise DataError(
            f"threshold is for two labels, and there are {len(head.labels)}: compare the columns "
            "of predict_proba instead"
        )
    return snapshot.positive


def label_to_find(value: Label, head: Head) -> str | None:
    """A label by which examples are chosen, as it is stored; None for None.

    Raises:
        DataError: The model does not have it.
    """
    if value is None:
        return None
    (stored,) = head.link.as_stored([value], head.labels)
    if head.link.usable([stored], head.labels) == [None]:
        raise DataError(
            f"label is not of the model, which has {head.link.described(head.labels)}; it is "
            f"{shown(value)}"
        )
    return stored


def check_top(value: int | None) -> int | None:
    """How many candidates are returned; None for all.

    Raises:
        DataError: It is no whole number, or negative.
    """
    top = None if value is None else _whole(value)
    if value is not None and (top is None or top < 0):
        raise DataError(f"top is a whole number from 0, not {shown(value)}")
    return top


def check_update_limits(value: UpdateLimits | None) -> UpdateLimits:
    """An update's limits, or the defaults.

    Raises:
        BudgetError: They are no limits.
    """
    if value is None:
        return UpdateLimits()
    if not isinstance(value, UpdateLimits):
        raise BudgetError(f"limits are a fala.UpdateLimits, not {shown(value)}")
    return value


def check_product(value: str | None) -> str | None:
    """A product's name, or None.

    Raises:
        DataError: It is invalid.
    """
    if value is not None and not (isinstance(value, str) and PRODUCT.fullmatch(value)):
        raise DataError(f"product is a name of a-z, 0-9, - and _, not {shown(value)}")
    return value


def check_where(
    where: Callable[[StoredExample], object] | None,
) -> Callable[[StoredExample], object]:
    """A condition on examples.

    Raises:
        DataError: It cannot be called.
        UsageError: It cannot be called with an example.
    """
    return _check_function(where, "where", ("example",))


def check_chosen(
    values: Iterable[int | StoredExample | Example], task: str
) -> tuple[list[int], list[Example]]:
    """The ids of examples that an app has chosen, and those that it passed themselves.

    Args:
        values: Ids, examples as a device returns them, or texts and matches.
        task: The task of the model.

    Raises:
        DataError: One is none of these.
    """
    ids: list[int] = []
    examples: list[Example] = []
    for position, value in enumerate(listed(values, "examples", ordered=False)):
        if isinstance(value, str | Match):
            examples.append(value)
            continue
        number = _whole(value.id if isinstance(value, StoredExample) else value)
        if number is None:
            raise DataError(
                f"example {position} is {type_of(value)}; pass examples, their ids (whole "
                "numbers), or what Device.examples returns"
            )
        ids.append(number)
    return ids, check_examples(examples, task)


def _whole(value: object) -> int | None:
    """A whole number as Python's; None of anything else."""
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        return None
    with contextlib.suppress(Exception):  # an array of several numbers, or an app's object
        return index(value)
    return None
