"""Writes bundles, whole or not at all.

The device itself writes releases of kind ``external``, for an app without a vendor; the exporter
writes all kinds.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fala.base.errors import BundleFormatError, DataError, shown, with_article
from fala.base.files import check_path, failure, write_atomically
from fala.bundle import format as layout
from fala.bundle.archive import check_entry, write_archive
from fala.bundle.arrays import array_bytes
from fala.bundle.content import read_lexical, read_probes
from fala.bundle.manifest import LONGEST_NAME, Manifest, printable_name
from fala.bundle.reading import Bundle, named_errors
from fala.model.heads import Head, Lexical
from fala.model.links import Rating, Tags

# The largest code of an inverse document frequency, and of a weight.
_IDF, _WEIGHT = 255, 127
# A step has few binary digits, so that its product with any code is exact in float32, and a second
# rounding changes nothing.
_DIGITS = 16
_SMALLEST = 2.0**-100


def write_bundle(
    path: str | os.PathLike[str],
    manifest: Manifest,
    files: Mapping[str, bytes],
    head: Head | None = None,
) -> Manifest:
    """Write a bundle, whole or not at all.

    The same manifest and files make the same bytes.

    Args:
        path: Where to write; replaced if it exists.
        manifest: The bundle's description; its ``files`` are filled in.
        files: Content by name (names in ``fala.bundle.format``), without the manifest.
        head: The global head that makes it a release; its task, labels and files are filled in.

    Returns:
        The manifest as written.

    Raises:
        BundleFormatError: The head is made for another dimension.
        DataError: An argument is of a wrong type, or the file cannot be written.
        BundleError: The result would not open: the file is verified before it is renamed.

    Examples:
        >>> bundle = fala.Bundle.open(fala_sim.sample_release("glove"))
        >>> files = {name: bundle.read(name) for name in bundle.manifest.files}
        >>> written = write_bundle("copy.fala", bundle.manifest, files)
        >>> fala.Bundle.open("copy.fala") == bundle
        True
    """
    target = check_path(path, "path")
    check_type(manifest, Manifest, "manifest")
    check_type(files, Mapping, "files")
    for name, data in files.items():
        if not isinstance(name, str) or not isinstance(data, bytes):
            raise DataError(f"files must be bytes by name, not {shown(data)} by {shown(name)}")
        with named_errors(target):
            check_entry(name)
    if head is not None:
        check_type(head, Head, "head")
        kinds = (layout.RATING, layout.EXCLUSIVE)
        details = {name: value for name, value in manifest.details.items() if name not in kinds}
        if isinstance(head.link, Rating):
            details[layout.RATING] = asdict(head.link)
        if isinstance(head.link, Tags):
            details[layout.EXCLUSIVE] = False
        manifest = replace(manifest, task=head.task, labels=head.labels, details=details)
        files = {**files, **_head_files(head)}
    files = dict(sorted(files.items()))
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    with named_errors(path):
        manifest = replace(manifest, files=digests)
        manifest_bytes = manifest.to_json()
        manifest = Manifest.from_json(manifest_bytes)

    def write(temporary: Path) -> None:
        write_archive(temporary, {**files, layout.MANIFEST: manifest_bytes})
        Bundle.verified(temporary, target)

    try:
        write_atomically(target, write)
    except OSError as error:
        raise DataError(f"{target}: cannot be written: {failure(error)}") from error
    return manifest


def write_for_encoder(
    path: str | os.PathLike[str],
    encoder: str,
    head: Head,
    probes: Mapping[str, Sequence[float] | NDArray[np.float32]],
    details: Mapping[str, Any],
) -> Manifest:
    """Write a release for the app's own encoder: a head, and no model.

    The encoder's name and the head's dimension are its identity, and the provenance of its
    embeddings: another name is another backbone.

    Args:
        path: Where to write; replaced if it exists.
        encoder: The encoder's name, with its version where it has one.
        head: The head on its embeddings.
        probes: The encoder's embeddings, (d,), by up to 16 inputs: texts, or keys for the app's
            function. They show later whether an app's function is this encoder; without any, only
            the shape of what it returns is checked.
        details: Further details for the manifest.

    Returns:
        The manifest as written.

    Raises:
        DataError: An argument is invalid, or the file cannot be written.
        BundleError: The result would not open.
    """
    check_type(head, Head, "head")
    check_type(probes, Mapping, "probes")
    check_type(details, Mapping, "details")
    if not printable_name(encoder) or not encoder.strip():
        raise DataError(
            f"an encoder's name must be a text of at most {LONGEST_NAME} printable characters"
        )
    try:
        embeddings = np.array(list(probes.values()), dtype=np.float32)
        if not probes:
            embeddings = embeddings.reshape(0, head.dimension)
        files = {
            layout.ENCODER_INPUTS: json.dumps(list(probes)).encode(),
            layout.ENCODER_EMBEDDINGS: array_bytes(embeddings),
        }
        read_probes(head.dimension, files.__getitem__)
    except BundleFormatError as error:
        raise DataError(f"the probes are not an encoder's probes: {error}") from error
    except (TypeError, ValueError, RecursionError):  # whose messages quote a probe
        raise DataError(
            "not an encoder's probes: inputs are texts, and their embeddings are numbers, of one "
            "length"
        ) from None
    manifest = Manifest(encoder, layout.EXTERNAL, head.dimension, "float32", details=dict(details))
    return write_bundle(path, manifest, files, head)


def rounded(lexical: Lexical) -> Lexical:
    """Return a lexical view as a bundle stores it, which another rounding does not change.

    Args:
        lexical: Any view.

    Returns:
        The view with its frequencies in steps of 1/255 of the largest, and each logit's weights in
        steps of 1/127.
    """
    return read_lexical(*_codes(lexical))


def lexical_files(lexical: Lexical) -> dict[str, bytes]:
    """Return the files of a lexical view, which store it as ``rounded`` returns it."""
    idf, weight, scales = _codes(lexical)
    return {
        layout.LEXICAL_IDF: array_bytes(idf),
        layout.LEXICAL_WEIGHT: array_bytes(weight),
        layout.LEXICAL_SCALES: array_bytes(scales),
    }


def check_type(value: object, kind: type, name: str) -> None:
    """Raise DataError if an argument is of a wrong type."""
    if not isinstance(value, kind):
        raise DataError(f"{name} must be {with_article(kind.__name__)}, not {shown(value)}")


def _head_files(head: Head) -> dict[str, bytes]:
    files = {
        layout.HEAD_WEIGHT: array_bytes(head.weight),
        layout.HEAD_BIAS: array_bytes(head.bias),
    }
    if head.query is not None:
        files[layout.HEAD_QUERY] = array_bytes(head.query)
    if head.lexical is not None:
        files |= lexical_files(head.lexical)
    return files


def _codes(
    lexical: Lexical,
) -> tuple[NDArray[np.uint8], NDArray[np.int8], NDArray[np.float32]]:
    idf = np.asarray(lexical.idf, dtype=np.float32)
    steps = [_step(idf, _IDF), *(_step(row, _WEIGHT) for row in lexical.weight)]
    by_logit = np.array(steps[1:])[:, None]
    return (
        np.rint(idf / steps[0]).astype(np.uint8),
        np.rint(lexical.weight / by_logit).astype(np.int8),
        np.array(steps, dtype=np.float32),
    )


def _step(row: NDArray[np.float32], most: int) -> float:
    largest = max(float(np.abs(row).max()), _SMALLEST)
    mantissa, exponent = math.frexp(largest / most)
    # Rounded up: no number exceeds the largest code.
    return math.ldexp(math.ceil(math.ldexp(mantissa, _DIGITS)), exponent - _DIGITS)
