"""The columns of a store's rows, checked: a damaged file may hold anything in any of them.

Every function takes what SQLite gave, and raises ``ValueError`` where it is not what it should be;
no message holds a text of the user's.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fala.bundle.manifest import PRODUCT
from fala.bundle.prompts import check_weights
from fala.errors import DataError
from fala.examples import MATCHING, Example, Match, as_text, texts_of
from fala.store.records import (
    OMEGA,
    THETA,
    FitRecord,
    LexicalRecord,
    SlotRecord,
    StoredExample,
)

#: The setting that tells how long a backbone's embeddings are; its digest follows.
DIMENSION = "dimension "
#: What of an example's row ``example_of`` takes, in this order.
EXAMPLE_COLUMNS = "id, document, history, label, added, labelled, adapter"
#: What of a slot's row ``slot_of`` takes, in this order.
SLOT_COLUMNS = (
    "name, bundle, backbone, weight, bias, model, teacher, teacher_vendor, threshold, labels,"
    " form, buckets, lexical, loss, prompt"
)


def text(value: object) -> str:
    """A text."""
    if not isinstance(value, str):
        raise ValueError(f"a text expected, not {_kind(value)}")
    return value


def adapter_named(value: object) -> str:
    """The name of a task's adapter; empty for the device's own task."""
    if value != "" and not PRODUCT.fullmatch(text(value)):
        raise ValueError("a name that no adapter has")
    return text(value)


def whole(value: object) -> int:
    """A whole number."""
    if not isinstance(value, int):
        raise ValueError(f"a whole number expected, not {_kind(value)}")
    return value


def number(value: object) -> float:
    """A finite number."""
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"a finite number expected, not {_kind(value)}")
    return float(value)


def blob(value: object) -> bytes:
    """Bytes."""
    if not isinstance(value, bytes):
        raise ValueError(f"bytes expected, not {_kind(value)}")
    return value


def floats(value: object) -> NDArray[np.float32]:
    """Finite numbers in float32, one or more."""
    numbers = np.frombuffer(blob(value), "<f4")
    if not len(numbers) or not np.isfinite(numbers).all():
        raise ValueError("an array that is empty, or not finite")
    return numbers


def example_of(
    row: tuple[object, ...], texts: Mapping[int, object], task: str | None = None
) -> StoredExample:
    """An example of its row; see ``EXAMPLE_COLUMNS``.

    Args:
        row: The columns.
        texts: All texts, by id.
        task: The device's; None takes an example of either kind.
    """
    identity, document, history, label, added, labelled, adapter = row
    kind = text(history)
    if task is not None and bool(kind) != (task == MATCHING):
        raise ValueError("an example of another task")
    own = _text_of(texts, document)
    example: Example = own
    if kind:
        example = Match(tuple(_text_of(texts, one) for one in history_of(kind)), own)
    return StoredExample(
        whole(identity),
        example,
        None if label is None else text(label),
        None if added is None else number(added),
        None if labelled is None else number(labelled),
        adapter_named(adapter),
    )


def kept_as(example: Example, ids: Mapping[str, int]) -> tuple[int, str]:
    """An example's document and history, as columns, by the ids of its texts."""
    document, *history = (ids[one] for one in texts_of(example))
    return document, json.dumps(history) if isinstance(example, Match) else ""


def history_of(value: object) -> list[int]:
    """The texts' ids of a match's history; none of a document's."""
    listed = json.loads(text(value)) if value != "" else []
    if not isinstance(listed, list) or any(type(one) is not int for one in listed):
        raise ValueError("a history that is no list of texts")
    return listed


def fit_of(value: str) -> FitRecord | None:
    """A fit's record of its setting; None where that is damaged: then all is fitted again."""
    try:
        read = json.loads(value)
        scales = tuple(number(scale) for scale in read.pop("scales"))
        record = FitRecord(**read, scales=scales)
        text(record.decision)
        counts = whole(record.data), whole(record.fitted), whole(record.further)
        return record if min(counts) >= 0 and 0 <= number(record.trust) <= 1 else None
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def slot_of(row: tuple[object, ...]) -> SlotRecord:
    """A slot of its row; see ``SLOT_COLUMNS``."""
    name, bundle, backbone, weight, bias, model, teacher, vendor, threshold = row[:9]
    labels, form, buckets, lexical, loss, prompt = row[9:]
    offsets, order, written = floats(bias), json.loads(text(labels)), text(form)
    if not isinstance(order, list) or not all(isinstance(one, str) for one in order):
        raise ValueError("labels that are no list of names")
    # Whoever keeps the order of the labels keeps omega, too.
    if written not in (OMEGA, THETA) or (written == THETA and order):
        raise ValueError("a form of weights that is not known")
    return SlotRecord(
        text(name), text(bundle), text(backbone), floats(weight).reshape(len(offsets), -1),
        offsets, text(model), None if teacher is None else text(teacher),
        None if vendor is None else text(vendor), number(threshold), tuple(order), written,
        _lexical(buckets, lexical, len(offsets)), None if loss is None else number(loss),
        () if prompt is None else _weights(prompt),
    )  # fmt: skip


def columns_of(record: SlotRecord) -> dict[str, object]:
    """A slot's row, by column."""
    lexical = record.lexical
    return {
        "name": record.name,
        "bundle": record.bundle,
        "backbone": record.backbone,
        "weight": _bytes(record.weight),
        "bias": _bytes(record.bias),
        "model": record.model,
        "teacher": record.teacher,
        "teacher_vendor": record.teacher_vendor,
        "threshold": record.threshold,
        "labels": json.dumps(record.labels),
        "form": record.form,
        "buckets": None if lexical is None else lexical.buckets.astype("<u2").tobytes(),
        "lexical": None if lexical is None else _bytes(lexical.weight),
        "loss": record.loss,
        "prompt": _weights_bytes(record),
    }


def dimension_of(value: str | None) -> int | None:
    """The setting that tells how long embeddings are; None where there is none."""
    if value is None:
        return None
    if not (value.isascii() and value.isdigit() and 0 < len(value) < 9):
        raise ValueError("a dimension that is no number")
    return int(value)


def vectors_of(blobs: list[object], dimension: int | None) -> NDArray[np.float32]:
    """Embeddings of their rows, shape (n, d).

    Args:
        blobs: n embeddings in float16.
        dimension: d; None takes what the first has.
    """
    if not blobs:
        return np.empty((0, dimension or 0), dtype=np.float32)
    # All at once: an array for each would cost more than reading them.
    parts = [blob(value) for value in blobs]
    length = len(parts[0]) if dimension is None else 2 * dimension
    if not length or any(len(part) != length for part in parts):
        raise ValueError("an embedding of another length")
    half = np.frombuffer(b"".join(parts), "<f2").reshape(len(parts), -1)
    vectors = half.astype(np.float32)
    if not np.isfinite(vectors).all():
        raise ValueError("an embedding that is not finite")
    return vectors


def _weights_bytes(record: SlotRecord) -> bytes | None:
    """The weights of a mixture of prompts; what texts were compiled to lies in another table."""
    if not record.prompt or isinstance(record.prompt, bytes):
        return None
    return np.array(record.prompt, "<f8").tobytes()


def _weights(value: object) -> tuple[float, ...]:
    """The weights of a mixture of prompts."""
    weights = tuple(np.frombuffer(blob(value), "<f8").tolist())
    try:
        check_weights(weights)
    except DataError as error:
        raise ValueError(str(error)) from error
    return weights


def _lexical(buckets: object, weight: object, logits: int) -> LexicalRecord | None:
    if buckets is None and weight is None:
        return None
    touched = np.frombuffer(blob(buckets), "<u2")
    if (np.diff(touched.astype(np.int64)) <= 0).any():
        raise ValueError("n-grams that are not in order")
    values = np.frombuffer(blob(weight), "<f4").reshape(logits, len(touched))
    return LexicalRecord(touched, values)


def _text_of(texts: Mapping[int, object], identity: object) -> str:
    if identity not in texts:
        raise ValueError("an example whose text is missing")
    return as_text(text(texts[whole(identity)]))


def _bytes(array: NDArray[np.float32]) -> bytes:
    return array.astype("<f4").tobytes()


def _kind(value: object) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"
