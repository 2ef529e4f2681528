"""The arguments of a device without a vendor, checked before anything changes."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from fala.backbones.external import Encoder, OwnEncoder, default_name
from fala.base.errors import BundleFormatError, DataError, UsageError, shown
from fala.base.examples import fault, listed
from fala.base.files import check_path
from fala.bundle.format import MAX_DIMENSION, MAX_LABELS
from fala.bundle.manifest import LONGEST_LABEL, LONGEST_NAME, printable_name
from fala.bundle.signature import Trust
from fala.model.labels import (
    LARGEST_INTEGER,
    LEAST_INTEGER,
    HeadLabel,
    OneLabel,
    integer_of,
    is_missing,
    number_of,
)
from fala.model.links import LABELS, LARGEST_RATING, TAGS, Link, Rating
from fala.slots.own import RATING, RATING_NOISE


def check_one_source(bundle: object, **labels: object) -> None:
    """Check that a device is created of a release, or of one kind of an app's own labels.

    Args:
        bundle: The release.
        labels: Kinds of labels by the arguments' names.

    Raises:
        UsageError: It is created of none or of several.
    """
    given = [name for name, value in labels.items() if value is not None]
    if (bundle is not None) + len(given) != 1:
        passed = [*(["a release"] if bundle is not None else []), *(f"{name}=" for name in given)]
        raise UsageError(
            "Device.create takes labels=, tags= or ratings= with your own encoder=, or a "
            f"vendor's release: one of them, not {' and '.join(passed) or 'none'}"
        )


def check_release(value: object) -> Path:
    """The path of a vendor's release.

    Raises:
        DataError: It is none, but perhaps labels or an encoder without their names.
    """
    try:
        return check_path(value, "bundle")
    except DataError as error:
        hint = ""
        if callable(value):
            hint = "; an encoder of your own is passed as encoder="
        elif isinstance(value, Collection) and not isinstance(value, str | bytes):
            hint = "; labels of your own are passed as labels="
        raise DataError(f"{error}{hint}") from None


def check_unsigned(trust: Trust | None) -> None:
    """Check that no signature is asked of a release that the app makes itself.

    Raises:
        UsageError: One is.
    """
    if trust is not None:
        raise UsageError(
            "trust= is the key of a vendor who signs releases; a device of your own encoder has "
            "no such release: leave trust= out"
        )


def check_of_release(**own: object) -> None:
    """Check that no argument for the app's own encoder is passed with a vendor's release.

    Args:
        own: The arguments, by name.

    Raises:
        UsageError: One is.
    """
    if given := [f"{name}=" for name, value in own.items() if value is not None]:
        raise UsageError(
            f"{' and '.join(given)} cannot be passed with a vendor's release, which has the name "
            "and the dimension of its encoder"
        )


def check_source(
    bundle: object,
    encoder: Encoder | Mapping[str, Encoder] | None,
    name: str | None,
    dimension: int | None,
    trust: Trust | None,
) -> OwnEncoder | None:
    """The app's next encoder, asked; None where a release is passed in its place.

    Args:
        bundle: The release.
        encoder: See ``Device.replace``.
        name: See ``Device.replace``.
        dimension: See ``Device.replace``.
        trust: See ``Device.replace``.

    Raises:
        UsageError: Neither is passed, or arguments of both are.
        DataError: An argument cannot be used.
        EncoderError: The encoder fails.
    """
    if bundle is not None:
        check_of_release(encoder=encoder, encoder_name=name, dimension=dimension)
        return None
    if encoder is None and dimension is None:
        raise UsageError("pass your next encoder as encoder=, or a vendor's release")
    check_unsigned(trust)
    return check_own_encoder(encoder, name, dimension)


def check_own_labels(
    labels: Iterable[OneLabel] | None,
    tags: Iterable[OneLabel] | None,
    ratings: tuple[float, float] | None,
) -> tuple[tuple[HeadLabel, ...], Link]:
    """The labels of an app without a vendor, and their meaning; one of the three is not None.

    Args:
        labels: See ``Device.create``.
        tags: See ``Device.create``.
        ratings: See ``Device.create``.

    Raises:
        DataError: They cannot be labels.
    """
    if ratings is not None:
        return (RATING,), _rating(ratings)
    if tags is not None:
        return check_names(tags, "tags"), TAGS
    names = check_names(labels or (), "labels")
    if len(names) < 2:
        raise DataError(
            f"labels are two or more names or integers, not {len(names)}; tags= takes one or more "
            "that an example may have at the same time"
        )
    return names, LABELS


def check_names(values: Iterable[OneLabel], name: str) -> tuple[HeadLabel, ...]:
    """The labels or tags that an app makes, all strings or all integers.

    Args:
        values: Names, or integers.
        name: The argument's name.

    Raises:
        DataError: They are none, too many or not distinct, or one cannot be a label.
    """
    given = listed(values, name)
    if not 1 <= len(given) <= MAX_LABELS:
        raise DataError(f"{name} are up to {MAX_LABELS} names or integers, not {len(given)}")
    for position, value in enumerate(given):
        number = None if is_missing(value) else integer_of(value)
        whole = number is not None and LEAST_INTEGER <= number <= LARGEST_INTEGER
        if whole if not isinstance(value, str) else _is_label(value):
            continue
        raise DataError(
            f"{name}[{position}] is {shown(value)}; a label is an integer of 64 bits, or a name "
            f"of up to {LONGEST_LABEL} characters without control characters"
        )
    if len({isinstance(value, str) for value in given}) > 1:
        raise DataError(f"{name} are all names or all integers, not some of each")
    labels = tuple(str(value) if isinstance(value, str) else int(value) for value in given)
    if len(set(labels)) < len(labels):
        raise DataError(f"{name} are distinct; of these {len(labels)}, {len(set(labels))} are")
    return labels


def _is_label(value: str) -> bool:
    return not fault(value) and bool(value.strip()) and printable_name(value, LONGEST_LABEL)


def _rating(value: object) -> Rating:
    """The rating of a range.

    Raises:
        DataError: It is none.
    """
    with contextlib.suppress(TypeError, BundleFormatError):
        low, high = map(number_of, listed(cast("Iterable[Any]", value), "ratings"))
        return Rating(low, high, RATING_NOISE * (high - low))
    raise DataError(
        f"ratings are the lowest and the highest number, as (1, 5), within {LARGEST_RATING:g}, "
        f"not {shown(value)}"
    )


def check_own_encoder(
    encoder: Encoder | Mapping[str, Encoder] | None, name: str | None, dimension: int | None
) -> OwnEncoder:
    """The encoder of an app without a vendor, asked once unless its dimension is given.

    Args:
        encoder: The function; or functions by their names, of which ``name`` is one.
        name: See ``Device.create``.
        dimension: See ``Device.create``.

    Raises:
        DataError: An argument cannot be used.
        EncoderError: The encoder fails.
    """
    if name is not None and (
        not isinstance(name, str) or not name.strip() or fault(name) or not printable_name(name)
    ):
        raise DataError(
            f"encoder_name is a name of up to {LONGEST_NAME} printable characters, not "
            f"{shown(name)}"
        )
    if isinstance(encoder, Mapping):
        if name is None and len(encoder) == 1:
            (name,) = encoder
        if name is None or name not in encoder:
            raise DataError(
                "encoder= has functions by their names: pass the name of the one to use as "
                "encoder_name="
            )
        encoder = encoder[name]
    # A model of PyTorch can be called, too, but not with texts.
    is_model = callable(getattr(encoder, "encode", None))
    if is_model or (encoder is not None and not callable(encoder)):
        raise DataError(
            "encoder is a function that takes a list of texts and returns their embeddings, as "
            f"model.encode or pipeline.transform, not {shown(encoder)}"
        )
    if dimension is None:
        if encoder is None:
            raise DataError(
                "pass encoder=, a function that takes a list of texts and returns their "
                "embeddings; or dimension=, the length of your fala.Item vectors"
            )
        return OwnEncoder.asked(encoder, name)
    length = None if isinstance(dimension, bool) else integer_of(dimension)
    if length is None or not 1 <= length <= MAX_DIMENSION:
        raise DataError(
            f"dimension is a whole number from 1 to {MAX_DIMENSION}, not {shown(dimension)}"
        )
    return OwnEncoder(name or default_name(encoder, length), length, encoder)
