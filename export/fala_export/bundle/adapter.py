"""Write a task's adapter as a bundle."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fala.base.errors import BundleFormatError
from fala.bundle import format as layout
from fala.bundle.arrays import array_bytes, read_array
from fala.bundle.content import SUBLAYERS, check_config, read_weights, site_names
from fala.bundle.manifest import Manifest
from fala.bundle.reading import Bundle
from fala.bundle.writing import write_bundle
from fala.model.heads import Head, Vectors

__all__ = ["adapter_files", "config_of", "stored_inputs", "write_adapter"]


_CODES = 127  # The largest code of a weight.


def write_adapter(
    path: str | os.PathLike[str],
    base: Bundle,
    name: str,
    inputs: Mapping[str, NDArray[np.float32]],
    head: Head,
    config: Mapping[str, Any],
    details: Mapping[str, Any],
) -> Manifest:
    """Write an adapter's bundle completely or not at all.

    Args:
        path: The bundle's file, which is replaced if it exists.
        base: A bundle with the adapter's backbone.
        name: The task's name, for people to read.
        inputs: The adapter's weights as inputs of the backbone; see ``adapter_files``.
        head: The task's head, for the adapted backbone's embeddings.
        config: The ``adapter_config.json``, with the keys of the ``adapters`` library.
        details: Provenance of the adapter, for the manifest's details.

    Returns:
        The manifest as written.

    Raises:
        BundleFormatError: The inputs are not an adapter's, or not finite, or the head is for
            another dimension.
        DataError: The bundle cannot be written.
    """
    config_bytes = json.dumps(dict(config), indent=2, sort_keys=True).encode()
    manifest = Manifest(
        name=name,
        kind=layout.ADAPTER,
        dimension=base.manifest.dimension,
        precision="int8",
        max_length=base.manifest.max_length,
        details={**details, "base": base.backbone_digest},
    )
    return write_bundle(
        path, manifest, {**adapter_files(inputs), layout.ADAPTER_CONFIG: config_bytes}, head
    )


def config_of(bundle: Bundle) -> dict[str, Any]:
    """Return an adapter's ``adapter_config.json``.

    Raises:
        BundleError: The bundle is not an adapter, or has changed since it was opened.
    """
    return check_config(bundle.read(layout.ADAPTER_CONFIG))


def stored_inputs(
    inputs: Mapping[str, NDArray[np.float32]], dimension: int
) -> dict[str, NDArray[np.float32]]:
    """Return the inputs as stored in a bundle, with weights rounded to one byte.

    Args:
        inputs: The adapter's weights; see ``write_adapter``.
        dimension: Length of an embedding.
    """
    files = adapter_files(inputs)
    arrays = {name: read_array(data) for name, data in files.items()}
    return read_weights(arrays, dimension).inputs


def adapter_files(inputs: Mapping[str, NDArray[Any]]) -> dict[str, bytes]:
    """Return the files of an adapter; the inverse of ``fala.bundle.content.read_weights``.

    Args:
        inputs: The inputs of L layers, for every ``adapter.{l}.{attention,output}``:
            ``.down.weight`` (d, m), ``.down.bias`` (m,), ``.up.weight`` (m, d), ``.up.bias``,
            ``.norm.weight`` and ``.norm.bias`` (d,).

    Raises:
        BundleFormatError: An input is missing or unknown, or the sites' shapes differ.
    """
    layers = len(inputs) // (len(SUBLAYERS) * len(layout.ADAPTER_PARTS))
    names = site_names(layers)
    if set(inputs) != {f"{site}.{part}" for site in names for part in layout.ADAPTER_PARTS}:
        raise BundleFormatError(
            "an adapter must have down, up and norm, each with weight and bias, at both "
            "sub-layers of every layer, and nothing else"
        )
    files: dict[str, bytes] = {}
    for part in layout.ADAPTER_PARTS:
        arrays = [np.asarray(inputs[f"{site}.{part}"], dtype=np.float32) for site in names]
        if len({array.shape for array in arrays}) != 1:
            raise BundleFormatError(f"the sites' {part} must have the same shape")
        if part in layout.ADAPTER_MATRICES:
            codes, scales = zip(*(_quantized(array) for array in arrays), strict=True)
            files[layout.adapter_file(part)] = array_bytes(np.concatenate(codes))
            files[layout.adapter_file(part, scales=True)] = array_bytes(np.stack(scales))
        else:
            files[layout.adapter_file(part)] = array_bytes(np.stack(arrays))
    return files


def _quantized(weight: Vectors) -> tuple[NDArray[np.int8], Vectors]:
    """Return a matrix in bytes, and the step of each column."""
    if weight.ndim != 2 or not np.isfinite(weight).all():
        raise BundleFormatError("an adapter's weights must be finite matrices")
    scales = (np.abs(weight).max(axis=0, initial=0.0) / _CODES).astype(np.float32)
    return np.rint(weight / np.where(scales > 0, scales, 1)).astype(np.int8), scales
