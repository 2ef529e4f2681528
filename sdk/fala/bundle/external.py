"""The files of a release for the app's own encoder: its name, and probes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fala.bundle import format as layout
from fala.bundle.arrays import check_array, read_array
from fala.bundle.manifest import printable_name, read_json
from fala.errors import BundleFormatError
from fala.examples import LARGEST, fault

#: The most inputs of the vendor's probes, and the most characters of each.
MOST_INPUTS, LONGEST_INPUT = 16, 1_000


def read_encoder(dimension: int, read: Callable[[str], bytes]) -> str:
    """The encoder's name, with its version.

    Args:
        dimension: The manifest's dimension.
        read: Returns a file's bytes.

    Raises:
        BundleFormatError: The file is invalid.
    """
    identity = read_json(read(layout.ENCODER), layout.ENCODER)
    if not isinstance(identity, dict) or set(identity) != {"name", "version", "dimension"}:
        raise BundleFormatError(f"{layout.ENCODER} must have a name, version and dimension")
    name, version = identity["name"], identity["version"]
    if not (name and version and printable_name(name) and printable_name(version)):
        raise BundleFormatError(
            f"{layout.ENCODER}: the name or version is not a text of printable characters"
        )
    if repr(identity["dimension"]) != repr(dimension):
        raise BundleFormatError(
            f"{layout.ENCODER}: {identity['dimension']!r:.40} dimensions; the manifest says "
            f"{dimension}"
        )
    return f"{name} {version}"


def read_probes(
    dimension: int, read: Callable[[str], bytes]
) -> tuple[list[str], NDArray[np.float32]]:
    """The probes' inputs, and the embeddings expected of them, (n, dimension).

    Args:
        dimension: The manifest's dimension.
        read: Returns a file's bytes.

    Raises:
        BundleFormatError: They are invalid.
    """
    inputs = read_json(read(layout.ENCODER_INPUTS), layout.ENCODER_INPUTS)
    if (
        not isinstance(inputs, list)
        or not 1 <= len(inputs) <= MOST_INPUTS
        or any(fault(text) or len(text) > LONGEST_INPUT for text in inputs)
    ):
        raise BundleFormatError(
            f"{layout.ENCODER_INPUTS} must have 1 to {MOST_INPUTS} texts of up to {LONGEST_INPUT} "
            "characters"
        )
    embeddings = read_array(read(layout.ENCODER_EMBEDDINGS), name=layout.ENCODER_EMBEDDINGS)
    check_array(layout.ENCODER_EMBEDDINGS, embeddings, np.float32, (len(inputs), dimension))
    # Else they cannot be stored, or compared by cosine.
    if (np.abs(embeddings) > LARGEST).any() or not embeddings.any(axis=1).all():
        raise BundleFormatError(
            f"{layout.ENCODER_EMBEDDINGS}: a number is too large for float16, or all are 0"
        )
    return inputs, embeddings
