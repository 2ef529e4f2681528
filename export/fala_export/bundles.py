"""Writes releases, and checks that a device admits them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from fala.backbones.external import Encoders
from fala.base.errors import BundleError, DataError, FalaError
from fala.base.examples import CLASSIFICATION
from fala.base.files import temporary_folder, write_atomically
from fala.bundle import format as layout
from fala.bundle.arrays import array_bytes
from fala.bundle.manifest import Manifest
from fala.bundle.reading import Bundle
from fala.bundle.writing import check_type, write_bundle, write_for_encoder
from fala.model.bridge import Bridge
from fala.model.heads import Head
from fala.slots.admit import Signed, admit, admit_adapter
from fala_export.writing import writing


def write_release(
    path: str | os.PathLike[str], backbone: Bundle, head: Head, details: Mapping[str, Any]
) -> Manifest:
    """Write a release: a backbone's bundle with a global head.

    Args:
        path: Where to write.
        backbone: The bundle with the backbone; a head in it is not copied.
        head: The global head, made for this backbone's embeddings.
        details: Notes about the head (such as its training data), added to the backbone's.

    Returns:
        The manifest as written.

    Raises:
        BundleFormatError: The head is made for another dimension.
        DataError: See ``write_bundle``.

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
    # The scales and the probes belong to the old head.
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
    """Write a release for the app's own encoder: a head, and no model.

    Name, version and the head's dimension are the encoder's identity and the provenance of its
    embeddings: another version is another backbone. An app that has no head to ship needs no
    release: ``fala.Device.create`` takes its labels and its encoder.

    Args:
        path: Where to write; replaced if it exists.
        name: The encoder's name.
        version: Its version.
        head: The global head on its embeddings; see ``fit_head``.
        probes: The encoder's embeddings, (d,), by 1 to 16 inputs: texts, or keys for the app's
            function. On a device they show whether its encoder is this one.
        details: Notes, as in ``write_release``; None for no notes.

    Returns:
        The manifest as written.

    Raises:
        DataError: An argument is invalid, or the file cannot be written.
        BundleError: The result would not open.
    """
    for argument, value in (("name", name), ("version", version)):
        check_type(value, str, argument)
        if not value.strip():
            raise DataError(f"{argument} is blank")
    check_type(probes, Mapping, "probes")
    if not probes:
        raise DataError("probes are the encoder's embeddings by 1 to 16 inputs, not none")
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
    """Write a bundle again with one more bridge; one from the same backbone is replaced.

    Args:
        path: Where to write; it may be the bundle's own file.
        bundle: The bundle of the bridge's target backbone.
        bridge: The bridge; stored in float16.
        details: Notes about it, in the manifest's details under ``bridges``.

    Returns:
        The manifest as written.

    Raises:
        BundleFormatError: It does not lead to embeddings of this backbone's dimension, or a number
            does not fit float16.

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
    """Write a bundle again with its version; devices reject a lower one.

    Args:
        path: Where to write; it may be the bundle's own file.
        bundle: The release.
        version: The release's number among the product's, from 1.
        product: The product's name, of a-z, 0-9, - and _; None keeps the bundle's.

    Returns:
        The manifest as written.

    Raises:
        BundleFormatError: The version is no whole number from 1, or the product no such name.
    """
    names = {} if product is None else {"product": product}
    return write_again(path, bundle, {"version": version, **names})


def check_admitted(path: Path, base: Path | None = None) -> dict[str, str]:
    """Check that a device admits a bundle, by the device's own door: audit, and validation.

    A backbone without a head is admitted with a head of zeros.

    Args:
        path: The bundle.
        base: The release, or the backbone, that an adapter is for.

    Returns:
        ``must be signed``, with the reason, where a device admits it only if it is signed by a key
        that the device trusts; else nothing.

    Raises:
        BundleError: A device would reject it.
    """
    try:
        _admit(path, base, Signed())
        return {}
    except BundleError as unsigned:
        try:
            _admit(path, base, Signed(verified=True))
        except BundleError as error:
            reason = str(error).rpartition(f"{path.name}: ")[2]
            raise type(error)(f"{path}: a device would reject it: {reason}") from error
        return {"must be signed": str(unsigned).rpartition(f"{path.name}: ")[2]}


def write_admitted(
    out: Path, make: Callable[[Path], Mapping[str, Any]], base: Path | None = None
) -> dict[str, Any]:
    """Make a bundle, and write it once a device would admit it.

    Args:
        out: Where to write; left alone when anything fails.
        make: Writes the bundle at a path, and returns its summary.
        base: See ``check_admitted``.

    Returns:
        The summary with ``bundle``, and what ``check_admitted`` returns.

    Raises:
        BundleError: A device would reject it.
        ExportError: It cannot be written.
    """
    part = out.with_name(f".{out.name}.{os.urandom(8).hex()}.part")
    try:
        summary = {**make(part), **check_admitted(part, base)}
        with writing(out):
            write_atomically(out, part.replace)
    except FalaError as error:
        if str(part) not in str(error):
            raise
        raise type(error)(str(error).replace(str(part), str(out))) from error
    finally:
        part.unlink(missing_ok=True)
    return {**summary, "bundle": str(out)}


def _admit(path: Path, base: Path | None, origin: Signed) -> None:
    """Admit a bundle, and load it as a device does at its first use."""
    with temporary_folder() as folder:
        if base is None:
            released = admit(_with_head(path, folder), origin, Encoders())
        else:
            # The device has it already, and knows where it came from.
            earlier = admit(_with_head(base, folder), Signed(verified=True), Encoders())
            released = admit_adapter(path, origin, earlier)
        if not released.bundle.external:
            released.backbone.load()


def _with_head(path: Path, folder: Path) -> Path:
    """The path of a bundle with a head: the bundle's own, or a copy in a folder."""
    bundle = Bundle.open(path)
    if bundle.manifest.task is not None:
        return path
    zeros = np.zeros((1, bundle.manifest.dimension), dtype=np.float32)
    head = Head(CLASSIFICATION, (0, 1), zeros, zeros[0, :1])
    copy = folder / path.name
    write_release(copy, bundle, head, {})
    return copy


def _read_all(bundle: Bundle, without: tuple[str, ...] = ()) -> dict[str, bytes]:
    names = [name for name in bundle.manifest.files if not name.startswith(without)]
    return {name: bundle.read(name) for name in names}


def versions(*packages: str) -> dict[str, str]:
    """The installed versions of packages, for the manifest."""
    return {package: metadata.version(package) for package in packages}
