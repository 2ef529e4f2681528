"""The files of a release for the app's own encoder: its name, and probes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fala.backbones.backbone import LARGEST
from fala.bundle import format as layout
from fala.bundle.arrays import array_bytes, read_array
from fala.bundle.manifest import Manifest, printable_name
from fala.errors import BundleFormatError, DataError
from fala.examples import fault

#: How many inputs the vendor's probes may be, and characters of each.
MOST_INPUTS, LONGEST_INPUT = 16, 1_000


def external_files(
    name: str, version: str, dimension: int, probes: Mapping[str, Sequence[float]]
) -> dict[str, bytes]:
    """The files of an encoder.

    Args:
        name: The encoder's.
        version: Its version.
        dimension: Length of an embedding.
        probes: The embeddings, (dimension,), that are expected of 1 to 16 inputs.

    Raises:
        DataError: A name is none, or the probes are not such embeddings.
    """
    for what, text in (("name", name), ("version", version)):
        if not text or not printable_name(text):
            raise DataError(f"the encoder's {what} is a text of printable characters")
    inputs = list(probes)
    if not 1 <= len(inputs) <= MOST_INPUTS:
        raise DataError(f"1 to {MOST_INPUTS} probes are needed, not {len(inputs)}")
    for one in inputs:
        if fault(one) or len(one) > LONGEST_INPUT:
            raise DataError(f"a probe is a text of up to {LONGEST_INPUT} characters")
    try:
        embeddings = np.array([probes[one] for one in inputs], dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise DataError(f"the probes' embeddings are not numbers: {error}") from error
    if embeddings.shape != (len(inputs), dimension) or not _usable(embeddings):
        raise DataError(
            f"the probes' embeddings are {dimension} numbers for each, as the head's, finite in "
            f"float16 and not all 0; these have shape {embeddings.shape}"
        )
    identity = {"name": name, "version": version, "dimension": dimension}
    return {
        layout.ENCODER: json.dumps(identity, sort_keys=True).encode(),
        layout.ENCODER_INPUTS: json.dumps([str(one) for one in inputs]).encode(),
        layout.ENCODER_EMBEDDINGS: array_bytes(embeddings),
    }


def read_encoder(manifest: Manifest, read: Callable[[str], bytes]) -> str:
    """The encoder's name, with its version.

    Raises:
        BundleFormatError: The file is not what it should be.
    """
    identity = _json(read(layout.ENCODER), layout.ENCODER)
    if not isinstance(identity, dict) or set(identity) != {"name", "version", "dimension"}:
        raise BundleFormatError(f"{layout.ENCODER} has not a name, version and dimension")
    name, version = identity["name"], identity["version"]
    if not (name and version and printable_name(name) and printable_name(version)):
        raise BundleFormatError(
            f"{layout.ENCODER}: the name or version is not a text of printable characters"
        )
    if repr(identity["dimension"]) != repr(manifest.dimension):
        raise BundleFormatError(
            f"{layout.ENCODER}: {identity['dimension']!r:.40} dimensions; the manifest says "
            f"{manifest.dimension}"
        )
    return f"{name} {version}"


def read_probes(
    manifest: Manifest, read: Callable[[str], bytes]
) -> tuple[list[str], NDArray[np.float32]]:
    """The probes' inputs, and the embeddings expected of them, (n, dimension).

    Raises:
        BundleFormatError: They are not what they should be.
    """
    inputs = _json(read(layout.ENCODER_INPUTS), layout.ENCODER_INPUTS)
    if (
        not isinstance(inputs, list)
        or not 1 <= len(inputs) <= MOST_INPUTS
        or any(fault(one) or len(one) > LONGEST_INPUT for one in inputs)
    ):
        raise BundleFormatError(f"{layout.ENCODER_INPUTS} has not 1 to {MOST_INPUTS} texts")
    embeddings = read_array(read(layout.ENCODER_EMBEDDINGS), name=layout.ENCODER_EMBEDDINGS)
    if (
        embeddings.dtype != np.float32
        or embeddings.shape != (len(inputs), manifest.dimension)
        or not _usable(embeddings)
    ):
        raise BundleFormatError(
            f"{layout.ENCODER_EMBEDDINGS} has not {manifest.dimension} numbers for each of "
            f"{len(inputs)} probes, finite in float16 and not all 0"
        )
    return inputs, embeddings


def _usable(embeddings: NDArray[np.float32]) -> bool:
    """Whether embeddings can be kept, and compared by their cosine."""
    fits = bool((np.abs(embeddings) <= LARGEST).all())
    return fits and bool(embeddings.any(axis=1).all())


def _json(data: bytes, name: str) -> object:
    try:
        return json.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise BundleFormatError(f"{name} is not JSON: {error}") from error
