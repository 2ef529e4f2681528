"""Write releases, and rewrite them with further content."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from typing import Any

import numpy as np

from fala.base.errors import DataError
from fala.bundle import format as layout
from fala.bundle.arrays import array_bytes
from fala.bundle.manifest import Manifest
from fala.bundle.reading import Bundle
from fala.bundle.writing import check_type, write_bundle, write_for_encoder
from fala.model.bridge import Bridge
from fala.model.heads import Head


def write_release(
    path: str | os.PathLike[str], backbone: Bundle, head: Head, details: Mapping[str, Any]
) -> Manifest:
    """Write a release: a backbone's bundle with a global head.

    Args:
        path: Where to write.
        backbone: The bundle with the backbone; if it has a head, the head is not copied.
        head: The global head, made for this backbone's embeddings.
        details: Notes about the head (such as its training data), which are added to the
            backbone's.

    Returns:
        The manifest as written.

    Raises:
        BundleFormatError: The head is made for another dimension.
        DataError: The bundle cannot be written; see ``write_bundle``.

    Examples:
        >>> bundle = fala.Bundle.open(fala_sim.sample_release("glove"))
        >>> texts = ["a lovely match", "a good soup", "a vile film", "a bad book"]
        >>> labels = ["praise", "praise", "blame", "blame"]
        >>> head = fala_export.fit_head(bundle.backbone(), texts, labels)
        >>> fala_export.write_release("mine.fala", bundle, head, {"head": "four rows"}).labels
        ('blame', 'praise')
    """
    check_type(backbone, Bundle, "backbone")
    check_type(head, Head, "head")
    check_type(details, Mapping, "details")
    # The scales (prior variances) and the probes belong to the old head.
    notes = {
        name: value
        for name, value in backbone.manifest.details.items()
        if name not in {"scales", "scales_from", "probes"}
    }
    manifest = replace(backbone.manifest, details={**notes, **details})
    files = _read_all(backbone, without=("head/", layout.LEXICAL))
    return write_bundle(path, manifest, files, head)


def write_external(
    path: str | os.PathLike[str],
    name: str,
    version: str,
    head: Head,
    probes: Mapping[str, Sequence[float]],
    details: Mapping[str, Any] | None = None,
) -> Manifest:
    """Write a release for the app's own encoder: a head without a model.

    Name, version and the head's dimension identify the encoder and its embeddings, so another
    version is another backbone. An app without a head to ship needs no release, because
    ``fala.Device.create`` accepts its labels and its encoder.

    Args:
        path: Where to write; an existing file is replaced.
        name: The encoder's name.
        version: The encoder's version.
        head: The global head on the encoder's embeddings; see ``fit_head``.
        probes: The encoder's embeddings, (d,), for 1 to 16 inputs: texts, or keys for the app's
            function. A device uses them to check whether its encoder is the same.
        details: Notes, as in ``write_release``; None for no notes.

    Returns:
        The manifest as written.

    Raises:
        DataError: An argument is invalid, or the file cannot be written.
        BundleError: The resulting bundle cannot be opened.
    """
    for argument, value in (("name", name), ("version", version)):
        check_type(value, str, argument)
        if not value.strip():
            raise DataError(f"{argument} must not be blank")
    check_type(probes, Mapping, "probes")
    if not probes:
        raise DataError("probes must be the encoder's embeddings for 1 to 16 inputs, not empty")
    return write_for_encoder(path, f"{name} {version}", head, probes, details or {})


def write_again(
    path: str | os.PathLike[str],
    bundle: Bundle,
    details: Mapping[str, Any],
    files: Mapping[str, bytes | None] | None = None,
) -> Manifest:
    """Write a bundle again with other details in its manifest, and other files.

    Args:
        path: Where to write; it may be the bundle's own file.
        bundle: The bundle.
        details: Changed details by name; None removes one.
        files: Changed files by name; None removes one.

    Returns:
        The manifest as written.
    """
    merged = {**bundle.manifest.details, **details}
    remaining = {name: value for name, value in merged.items() if value is not None}
    manifest = replace(bundle.manifest, details=remaining)
    content = {**_read_all(bundle), **(files or {})}
    return write_bundle(
        path, manifest, {name: data for name, data in content.items() if data is not None}
    )


def add_bridge(
    path: str | os.PathLike[str], bundle: Bundle, bridge: Bridge, details: Mapping[str, Any]
) -> Manifest:
    """Write a bundle again with one more bridge, replacing a bridge from the same backbone.

    Args:
        path: Where to write; it may be the bundle's own file.
        bundle: The bundle of the bridge's target backbone.
        bridge: The bridge, which is stored in float16.
        details: Notes about the bridge, in the manifest's details under ``bridges``.

    Returns:
        The manifest as written.

    Raises:
        BundleFormatError: The bridge leads to embeddings of another dimension, or a number does not
            fit into float16.

    Examples:
        >>> sample = fala_sim.sample_release
        >>> old, new = (fala.Bundle.open(sample(name)) for name in ("glove", "bert"))
        >>> bridge = new.bridges()[old.backbone_digest]  # or of fit_bridge
        >>> written = fala_export.add_bridge("new.fala", new, bridge, {"text": "public.txt"})
        >>> list(fala.Bundle.open("new.fala").bridges()) == [old.backbone_digest]
        True
    """
    check_type(bundle, Bundle, "bundle")
    check_type(bridge, Bridge, "bridge")
    check_type(details, Mapping, "details")
    folder = f"{layout.BRIDGES}{bridge.source}"
    parts = (bridge.matrix, bridge.offset, bridge.variance)
    with np.errstate(over="ignore"):
        new = {
            f"{folder}/{name}": array_bytes(part.astype(np.float16))
            for name, part in zip(layout.BRIDGE_FILES, parts, strict=True)
        }
    earlier = bundle.manifest.details.get("bridges")
    bridges = {**(earlier if isinstance(earlier, dict) else {}), bridge.source: dict(details)}
    return write_again(path, bundle, {"bridges": bridges}, new)


def add_version(
    path: str | os.PathLike[str], bundle: Bundle, version: int, product: str | None = None
) -> Manifest:
    """Write a bundle again with a version, because devices reject a lower one.

    Args:
        path: Where to write; it may be the bundle's own file.
        bundle: The release.
        version: The release's number among the product's releases, from 1.
        product: The product's name, made of a-z, 0-9, - and _; None keeps the bundle's.

    Returns:
        The manifest as written.

    Raises:
        BundleFormatError: The version is not a whole number of at least 1, or the product's name is
            invalid.
    """
    names = {} if product is None else {"product": product}
    return write_again(path, bundle, {"version": version, **names})


def _read_all(bundle: Bundle, without: tuple[str, ...] = ()) -> dict[str, bytes]:
    names = [name for name in bundle.manifest.files if not name.startswith(without)]
    return {name: bundle.read(name) for name in names}


def versions(*packages: str) -> dict[str, str]:
    """Return the installed versions of packages, for the manifest."""
    return {package: metadata.version(package) for package in packages}
