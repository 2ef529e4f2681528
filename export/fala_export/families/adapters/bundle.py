"""A task's adapter as a bundle."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fala.bundle import format as layout
from fala.bundle.adapter import adapter_files, check_config, read_inputs
from fala.bundle.arrays import read_array
from fala.bundle.manifest import Manifest
from fala.bundle.reading import Bundle
from fala.bundle.writing import write_bundle
from fala.model.heads import Head

__all__ = ["config_of", "stored_inputs", "write_adapter"]


def write_adapter(
    path: str | os.PathLike[str],
    base: Bundle,
    name: str,
    inputs: Mapping[str, NDArray[np.float32]],
    head: Head,
    config: Mapping[str, Any],
    details: Mapping[str, Any],
) -> Manifest:
    """Write an adapter's bundle, whole or not at all.

    Args:
        path: The file; replaced if it exists.
        base: A bundle with the adapter's backbone.
        name: The task's name, for people.
        inputs: The adapter's weights as inputs of the backbone; see
            ``fala.bundle.adapter.adapter_files``.
        head: The task's head, for the adapted backbone's embeddings.
        config: ``adapter_config.json``, with the keys of the ``adapters`` library.
        details: Its provenance, for the manifest's details.

    Returns:
        The manifest as written.

    Raises:
        BundleFormatError: The inputs are not an adapter's, or not finite.
        DimensionError: The head is for another dimension.
        DataError: It cannot be written.
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
    """An adapter's ``adapter_config.json``.

    Raises:
        BundleError: The bundle is no adapter, or changed since it was opened.
    """
    return check_config(bundle.read(layout.ADAPTER_CONFIG))


def stored_inputs(
    inputs: Mapping[str, NDArray[np.float32]], dimension: int
) -> dict[str, NDArray[np.float32]]:
    """The inputs as stored in a bundle: weights are rounded to one byte.

    Args:
        inputs: See ``write_adapter``.
        dimension: Length of an embedding.
    """
    files = adapter_files(inputs)
    return dict(read_inputs({name: read_array(data) for name, data in files.items()}, dimension))
