"""The arguments of the device's methods, checked before anything changes.

Each function returns an argument as the device uses it, or raises an error that names the argument
and says what was expected: ``DataError`` for a value, ``UsageError`` for arguments that do not fit
together, and ``BudgetError`` for limits. Arguments have the names and meanings of ``fala.Device``.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import os
import pathlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import index
from typing import Any, SupportsIndex, TypeVar, cast, get_args

from fala.backbones.external import ExternalEncoder, Functions, default_name
from fala.base.errors import (
    BudgetError,
    BundleError,
    BundleFormatError,
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
from fala.base.files import check_path, identity_of
from fala.bundle.format import MAX_DIMENSION, MAX_LABELS
from fala.bundle.manifest import LONGEST_LABEL, LONGEST_NAME, PRODUCT, printable_name
from fala.bundle.signature import Trust
from fala.model.heads import Head
from fala.model.labels import (
    LARGEST_INTEGER,
    LEAST_INTEGER,
    HeadLabel,
    Label,
    OneLabel,
    integer_of,
    is_missing,
    named,
    number_of,
)
from fala.model.links import LABELS, LARGEST_RATING, TAGS, Link, Rating
from fala.personal.compare import Accept
from fala.personal.replace import Terms
from fala.personal.run import Budget, Progress
from fala.slots.admit import Origin
from fala.slots.folder import Snapshot
from fala.slots.own import RATING_NAME, RATING_NOISE
from fala.slots.release import Release
from fala.store.examples import StoredExample
from fala.updates.limits import UpdateLimits

Function = TypeVar("Function", bound=Callable[..., object])
Limits = TypeVar("Limits", Budget, UpdateLimits)

Path = str | os.PathLike[str]
#: The adapters' files; a mapping gives the task's name where it differs from the bundle's name.
NewAdapters = Iterable[Path] | Mapping[str, Path]


# Paths, names, numbers, functions


def check_folder(value: Path) -> pathlib.Path:
    """Return a device's folder as an absolute path, because the working directory may change."""
    folder = check_path(value, "path")
    try:
        return folder.absolute()
    except OSError as error:
        raise DeviceError(f"{folder}: the working directory is gone: {error.strerror}") from error


def check_name(value: str, name: str) -> str:
    """Return a text that is not blank."""
    if (problem := fault(value)) or not value.strip():
        raise DataError(f"{name} {problem or 'is blank'}")
    return value


def check_adapter_name(value: str) -> str:
    """Return an adapter's name."""
    if not isinstance(value, str) or not PRODUCT.fullmatch(value):
        raise DataError(f"an adapter's name must consist of a-z, 0-9, - and _, not {shown(value)}")
    return value


def check_product(value: str | None) -> str | None:
    """Return a product's name, or None."""
    if value is not None and not (isinstance(value, str) and PRODUCT.fullmatch(value)):
        raise DataError(f"product must be a name of a-z, 0-9, - and _, not {shown(value)}")
    return value


def check_threshold(value: float) -> float:
    """Return a probability."""
    number = math.nan if isinstance(value, str) else number_of(value)
    if not 0 <= number <= 1:
        raise DataError(f"threshold must be a probability from 0 to 1, not {shown(value)}")
    return number


def check_top(value: int | None) -> int | None:
    """Return the number of candidates wanted; None for all."""
    top = None if value is None else _whole(value)
    if value is not None and (top is None or top < 0):
        raise DataError(f"top must be a whole number, 0 or more, not {shown(value)}")
    return top


def check_limits(value: Limits | None, kind: type[Limits], usual: str) -> Limits:
    """Return limits of a kind, or the default ones.

    Args:
        value: The app's argument.
        kind: The type of the limits.
        usual: What the argument must be, with which the error begins.
    """
    if value is None:
        return kind()
    if not isinstance(value, kind):
        raise BudgetError(f"{usual}, not {shown(value)}")
    return value


def check_budget(value: Budget | None) -> Budget:
    """Return a budget, or the default one."""
    return check_limits(
        value, Budget, "budget must be a fala.Budget, like Budget(forward_passes=50)"
    )


def check_function(value: Function | None, name: str, *of: str) -> Function:
    """Return a function of the app that can be called with these arguments.

    Args:
        value: The function.
        name: The name of the argument.
        of: The names of the function's own arguments.
    """
    usual = f"{name} must be a function of ({', '.join(of)})"
    if not callable(value):
        raise DataError(f"{usual}, not {shown(value)}")
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):  # such as a function written in C, which the first call checks
        return value
    with contextlib.suppress(TypeError):
        signature.bind(*of)
        return value
    # The message does not show the signature, because a default may be a text of the user.
    raise UsageError(f"{usual}, but this one is of ({', '.join(signature.parameters)})")


def check_progress(value: Progress | None) -> Progress | None:
    """Return a progress function, or None."""
    return None if value is None else check_function(value, "progress", "stage", "done", "total")


def _whole(value: object) -> int | None:
    """Return a whole number as Python's int; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        return None
    with contextlib.suppress(Exception):  # an array of several numbers, or an app's object
        return index(value)
    return None


# Examples and labels


def check_items(examples: Iterable[Example], release: Release) -> None:
    """Check that the items among some examples fit the active release."""
    items = items_of(examples)
    if not items:
        return
    bundle, name = release.bundle, release.name
    if not bundle.external:
        raise DataError(
            f"{name} reads texts; use fala.Item only with a release for the app's own encoder"
        )
    if release.head.lexical is not None:
        raise DataError(
            f"{name} has n-gram features, which a fala.Item lacks; create a device for your own "
            "items with dimension="
        )
    encoders = {None, bundle.encoder}
    for item in items:
        if item.encoder in encoders:
            item.check(bundle.manifest.dimension)


def check_readable(values: Iterable[Example], snapshot: Snapshot) -> list[Example]:
    """Return examples that a task's active release can read."""
    examples = check_examples(values, snapshot.head.task)
    check_items(examples, snapshot.release)
    return examples


def check_labelled(
    snapshot: Snapshot, examples: Iterable[Example], labels: Iterable[Label] | None
) -> tuple[list[Example], list[str | None]]:
    """Return examples to be learned, and their labels as a store keeps them."""
    head = snapshot.head
    checked = check_readable(examples, snapshot)
    check_not_blank(checked)
    values: Sequence[Label] = [None] * len(checked)
    if labels is not None:
        values = listed(labels, "labels")
    if len(values) != len(checked):
        raise DataError(
            f"examples and labels must be equally many, but there are "
            f"{counted(len(checked), 'example')} and {counted(len(values), 'label')}"
        )
    try:
        head.label_shares(values)
    except UnknownLabelError as error:
        if not snapshot.release.own:
            raise
        raise UnknownLabelError(f"{error}; device.add_labels([...]) adds labels") from None
    return checked, head.link.as_stored(values, head.labels)


def check_candidates(
    values: Iterable[str], history: Iterable[str], snapshot: Snapshot
) -> list[Example]:
    """Return the examples of candidates to rank, which have the user's history for a matcher."""
    candidates, opened = listed(values, "candidates"), tuple(listed(history, "history"))
    if snapshot.head.task == MATCHING:
        return check_readable([Match(opened, candidate) for candidate in candidates], snapshot)
    if opened:
        raise DataError("a classifier takes no history, because it ranks each candidate by itself")
    return check_readable(candidates, snapshot)


def check_chosen(
    values: Iterable[int | StoredExample | Example], task: str
) -> tuple[list[int], list[Example]]:
    """Return the ids of examples that an app chose by id, and the examples that it passed.

    Args:
        values: Ids, examples as a device returns them, or texts and matches.
        task: The task of the model.
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


def label_to_rank(value: OneLabel | None, head: Head, positive: HeadLabel | None) -> int:
    """Return the position of the label whose probability ranks.

    Args:
        value: The app's argument; None takes ``positive``, or the only label.
        head: The model's head.
        positive: The label that rankings are by without an argument; None if there is none.
    """
    if value is not None:
        positive = head.label_of(value, "label")
    elif len(head.labels) == 1:  # a rating, or one tag
        (positive,) = head.labels
    if positive is None:
        raise DataError(
            "candidates are ranked by a label's probability; pass label=, one of "
            f"{named(head.labels)}"
        )
    return head.labels.index(positive)


def label_to_find(value: Label, head: Head) -> str | None:
    """Return a label by which examples are chosen, as it is stored; None for None."""
    if value is None:
        return None
    (stored,) = head.link.as_stored([value], head.labels)
    if head.link.usable([stored], head.labels) == [None]:
        raise DataError(
            f"label is not of the model, which has {head.link.described(head.labels)}; it is "
            f"{shown(value)}"
        )
    return stored


def positive_of_two(snapshot: Snapshot) -> HeadLabel:
    """Return the positive label of a task's two labels."""
    head = snapshot.head
    head.check_exclusive("threshold")
    if len(head.labels) != 2 or snapshot.positive is None:
        raise DataError(
            f"threshold is for two labels, and this task has {len(head.labels)}; compare the "
            "columns of predict_proba instead"
        )
    return snapshot.positive


def check_probabilities(head: Head) -> None:
    """Refuse a rating, which has no probabilities."""
    if head.link.kind == "rating":
        raise UsageError("a rating has no probabilities; predict returns its values")


def check_own_labels(
    bundle: object,
    labels: Iterable[OneLabel] | None,
    tags: Iterable[OneLabel] | None,
    ratings: tuple[float, float] | None,
) -> tuple[tuple[HeadLabel, ...], Link] | None:
    """Return an app's own labels and their meaning; None for a vendor's release.

    A device is created from a release, or from one kind of labels.
    """
    sources = {"a release": bundle, "labels=": labels, "tags=": tags, "ratings=": ratings}
    passed = [name for name, value in sources.items() if value is not None]
    if len(passed) != 1:
        raise UsageError(
            "Device.create takes labels=, tags= or ratings= with your own encoder=, or a "
            f"vendor's release; pass one of them, not {' and '.join(passed) or 'none'}"
        )
    if bundle is not None:
        return None
    if ratings is not None:
        return (RATING_NAME,), _rating(ratings)
    if tags is not None:
        return check_names(tags, "tags"), TAGS
    names = check_names(labels or (), "labels")
    if len(names) < 2:
        raise DataError(
            f"labels must be two or more names or integers, not {len(names)}; tags= takes one or "
            "more that an example may have at the same time"
        )
    return names, LABELS


def check_names(values: Iterable[OneLabel], name: str) -> tuple[HeadLabel, ...]:
    """Return the labels or tags that an app makes, all strings or all integers."""
    given = listed(values, name)
    if not 1 <= len(given) <= MAX_LABELS:
        raise DataError(f"{name} must be 1 to {MAX_LABELS} names or integers, not {len(given)}")
    for position, value in enumerate(given):
        number = None if is_missing(value) else integer_of(value)
        whole = number is not None and LEAST_INTEGER <= number <= LARGEST_INTEGER
        if whole if not isinstance(value, str) else _is_label(value):
            continue
        raise DataError(
            f"{name}[{position}] is {shown(value)}; a label must be an integer of 64 bits, or a "
            f"name of up to {LONGEST_LABEL} characters without control characters"
        )
    if len({isinstance(value, str) for value in given}) > 1:
        raise DataError(f"{name} must be all names or all integers, not some of each")
    labels = tuple(str(value) if isinstance(value, str) else int(value) for value in given)
    if len(set(labels)) < len(labels):
        raise DataError(
            f"{name} must be distinct, but only {len(set(labels))} of these {len(labels)} are"
        )
    return labels


def _is_label(value: str) -> bool:
    return not fault(value) and bool(value.strip()) and printable_name(value, LONGEST_LABEL)


def _rating(value: object) -> Rating:
    with contextlib.suppress(TypeError, BundleFormatError):
        low, high = map(number_of, listed(cast("Iterable[Any]", value), "ratings"))
        return Rating(low, high, RATING_NOISE * (high - low))
    raise DataError(
        f"ratings must be the lowest and the highest number, like (1, 5), within "
        f"{LARGEST_RATING:g}, not {shown(value)}"
    )


# Releases, and encoders in their place


def check_terms(
    accept: Accept, origin: Origin, adapters: NewAdapters, *, allow_older: bool
) -> Terms:
    """Return the terms of a release's installation."""
    accepted = cast(Accept, check_word(accept, get_args(Accept), "accept"))
    older = check_flag(allow_older, "allow_older")
    return Terms(accepted, origin, older, check_adapters(adapters))


def check_adapters(values: NewAdapters) -> list[pathlib.Path] | dict[str, pathlib.Path]:
    """Return adapters' files, or files by the names of their tasks."""
    if isinstance(values, Mapping):
        return {
            check_adapter_name(name): check_path(file, "adapters") for name, file in values.items()
        }
    return [check_path(file, "adapters") for file in listed(values, "adapters", ordered=False)]


def check_release(value: object) -> pathlib.Path:
    """Return the path of a vendor's release."""
    try:
        path = check_path(value, "bundle")
    except DataError as error:
        hint = ""
        if callable(value):
            hint = "; an encoder of your own is passed as encoder="
        elif isinstance(value, Collection) and not isinstance(value, str | bytes):
            hint = "; labels of your own are passed as labels="
        raise DataError(f"{error}{hint}") from None
    if not path.suffix and identity_of(path) is None:  # probably the name of a sample release
        raise BundleError(
            f"{path}: no such file; an app needs none: pass your own labels= and encoder= to "
            "Device.create. fala-replace shows the sample releases"
        )
    return path


def check_unsigned(trust: Trust | None) -> None:
    """Check that no signature is required of a release that the app makes itself."""
    if trust is not None:
        raise UsageError(
            "trust= is the key of a vendor who signs releases, which a device of your own encoder "
            "does not have; leave trust= out"
        )


def check_of_release(**own: object) -> None:
    """Check that no argument for the app's own encoder is passed with a vendor's release.

    Args:
        own: The arguments, by name.
    """
    if given := [f"{name}=" for name, value in own.items() if value is not None]:
        raise UsageError(
            f"{' and '.join(given)} cannot be passed with a vendor's release, which has the name "
            "and the dimension of its encoder"
        )


def check_source(
    bundle: object,
    encoder: Functions | None,
    dimension: int | None,
    trust: Trust | None,
) -> ExternalEncoder | None:
    """Return the app's next encoder, after asking it; None if a release is passed instead."""
    if bundle is not None:
        check_of_release(encoder=encoder, dimension=dimension)
        return None
    if encoder is None and dimension is None:
        raise UsageError("pass your next encoder (encoder=), or a vendor's release")
    check_unsigned(trust)
    return check_own_encoder(encoder, dimension)


def check_own_encoder(encoder: Functions | None, dimension: int | None) -> ExternalEncoder:
    """Return the encoder of an app without a vendor, asked once unless its dimension is given.

    Args:
        encoder: The function, or a mapping from its name to the function.
        dimension: The length of an embedding, or None.

    Raises:
        EncoderError: If the encoder fails.
    """
    name = None
    if isinstance(encoder, Mapping):
        if len(encoder) != 1:
            raise DataError(
                f"encoder has {counted(len(encoder), 'function')}; pass the one to use, by its "
                "name, because only Device.open takes several"
            )
        ((name, encoder),) = encoder.items()
        if not isinstance(name, str) or not name.strip() or fault(name) or not printable_name(name):
            raise DataError(
                f"an encoder's name must have up to {LONGEST_NAME} printable characters, not "
                f"{shown(name)}"
            )
    # A PyTorch model can also be called, but not with texts.
    is_model = callable(getattr(encoder, "encode", None))
    if is_model or (encoder is not None and not callable(encoder)):
        raise DataError(
            "encoder must be a function that takes a list of texts and returns their embeddings, "
            f"like model.encode or pipeline.transform, not {shown(encoder)}"
        )
    if dimension is None:
        if encoder is None:
            raise DataError(
                "pass encoder=, a function that takes a list of texts and returns their "
                "embeddings; or dimension=, the length of your fala.Item vectors"
            )
        return ExternalEncoder.asked(encoder, name)
    length = None if isinstance(dimension, bool) else integer_of(dimension)
    if length is None or not 1 <= length <= MAX_DIMENSION:
        raise DataError(
            f"dimension must be a whole number from 1 to {MAX_DIMENSION}, not {shown(dimension)}"
        )
    return ExternalEncoder(name or default_name(encoder, length), length, encoder)
