"""Writes bundles and releases, whole or not at all."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fala.backbones.external import Encoders
from fala.bundle import format as layout
from fala.bundle.archive import check_name, write_archive
from fala.bundle.arrays import array_bytes
from fala.bundle.manifest import Manifest
from fala.bundle.parts import read_encoder, read_lexical, read_probes
from fala.bundle.reading import Bundle, named_errors
from fala.errors import (
    BundleError,
    BundleFormatError,
    DataError,
    FalaError,
    shown,
    with_article,
)
from fala.examples import CLASSIFICATION
from fala.files import check_path, failure, temporary_folder, write_atomically
from fala.model.bridge import Bridge
from fala.model.heads import Head, Lexical
from fala.model.links import Rating, Tags
from fala.model.prior import PopulationPrior
from fala.slots.admit import Signed, admit, admit_adapter
from fala_export.writing import writing

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
        DimensionError: The head is made for another dimension.
        DataError: An argument is of a wrong type, or the file cannot be written.
        BundleError: The result would not open: the file is verified before it is renamed.

    Examples:
        >>> bundle = fala.Bundle.open(fala_sim.sample_release("glove"))
        >>> files = {name: bundle.read(name) for name in bundle.manifest.files}
        >>> written = fala_export.write_bundle("copy.fala", bundle.manifest, files)
        >>> fala.Bundle.open("copy.fala") == bundle
        True
    """
    target = check_path(path, "path")
    _check(manifest, Manifest, "manifest")
    _check(files, Mapping, "files")
    for name, data in files.items():
        if not isinstance(name, str) or not isinstance(data, bytes):
            raise DataError(f"files are bytes by name, not {shown(data)} by {shown(name)}")
        with named_errors(target):
            check_name(name)
    if head is not None:
        _check(head, Head, "head")
        kinds = (layout.RATING, layout.EXCLUSIVE, layout.PUBLIC_LOGITS)
        details = {name: value for name, value in manifest.details.items() if name not in kinds}
        if isinstance(head.link, Rating):
            details[layout.RATING] = asdict(head.link)
        if isinstance(head.link, Tags):
            details[layout.EXCLUSIVE] = False
        if head.link.public_logits:
            details[layout.PUBLIC_LOGITS] = [list(column) for column in head.link.public_logits]
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
        DimensionError: The head is made for another dimension.
        DataError: See ``write_bundle``.

    Examples:
        >>> bundle = fala.Bundle.open(fala_sim.sample_release("glove"))
        >>> texts = ["a lovely match", "a good soup", "a vile film", "a bad book"]
        >>> labels = ["praise", "praise", "blame", "blame"]
        >>> head = fala_export.fit_head(bundle.backbone(), texts, labels)
        >>> fala_export.write_release("mine.fala", bundle, head, {"head": "four rows"}).labels
        ('blame', 'praise')
    """
    _check(backbone, Bundle, "backbone")
    _check(head, Head, "head")
    _check(details, Mapping, "details")
    # A prior, the scales and the probes belong to the old head.
    notes = {
        name: value
        for name, value in backbone.manifest.details.items()
        if name not in {"prior", "scales", "probes"}
    }
    manifest = replace(backbone.manifest, details={**notes, **details})
    files = _read_all(backbone, without=("head/", layout.LEXICAL, "prior/"))
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
    embeddings: another version is another backbone.

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
    _check(head, Head, "head")
    _check(probes, Mapping, "probes")
    notes = {} if details is None else details
    _check(notes, Mapping, "details")
    files = _external_files(name, version, head.dimension, probes)
    manifest = Manifest(
        f"{name} {version}", layout.EXTERNAL, head.dimension, "float32", details=dict(notes)
    )
    return write_bundle(path, manifest, files, head)


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
        DimensionError: It does not lead to embeddings of this backbone's dimension.
        BundleFormatError: A number does not fit float16.

    Examples:
        >>> sample = fala_sim.sample_release
        >>> old, new = (fala.Bundle.open(sample(name)) for name in ("glove", "bert"))
        >>> bridge = new.bridges()[old.backbone_digest]  # or of fit_bridge
        >>> written = fala_export.add_bridge("new.fala", new, bridge, {"text": "public.txt"})
        >>> list(fala.Bundle.open("new.fala").bridges()) == [old.backbone_digest]
        True
    """
    _check(bundle, Bundle, "bundle")
    _check(bridge, Bridge, "bridge")
    _check(details, Mapping, "details")
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


def add_prior(
    path: str | os.PathLike[str], bundle: Bundle, prior: PopulationPrior, details: Mapping[str, Any]
) -> Manifest:
    """Write a release again with a population prior; an earlier one is replaced.

    Args:
        path: Where to write; it may be the bundle's own file.
        bundle: The release whose head the prior is for.
        prior: The prior.
        details: Notes about it, in the manifest's details under ``prior``.

    Returns:
        The manifest as written.

    Raises:
        DimensionError: It is for another dimension, or the head does not have two labels.

    Examples:
        >>> bundle = fala.Bundle.open(fala_sim.sample_release("glove"))
        >>> d = bundle.manifest.dimension
        >>> numbers = np.zeros(d + 1), np.full(d + 1, 0.1), np.empty((0, d + 1))
        >>> prior = fala_export.PopulationPrior(*numbers)
        >>> details = {"people": "none: an example"}
        >>> written = fala_export.add_prior("prior.fala", bundle, prior, details)
        >>> fala.Bundle.open("prior.fala").prior().dimension == d
        True
    """
    _check(bundle, Bundle, "bundle")
    _check(prior, PopulationPrior, "prior")
    _check(details, Mapping, "details")
    return write_again(path, bundle, {"prior": dict(details)}, prior_files(prior))


def prior_files(prior: PopulationPrior | None) -> dict[str, bytes | None]:
    """The files of a population prior in a bundle; their content is None without a prior."""
    if prior is None:
        return dict.fromkeys((layout.PRIOR_MEAN, layout.PRIOR_VARIANCE, layout.PRIOR_FACTORS))
    return {
        layout.PRIOR_MEAN: array_bytes(prior.mean),
        layout.PRIOR_VARIANCE: array_bytes(prior.variance),
        layout.PRIOR_FACTORS: array_bytes(prior.factors),
    }


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
            _ = released.backbone.loaded


def _with_head(path: Path, folder: Path) -> Path:
    """The path of a bundle with a head: the bundle's own, or a copy in a folder."""
    bundle = Bundle.open(path)
    if bundle.manifest.task is not None:
        return path
    zeros = np.zeros((1, bundle.manifest.dimension), dtype=np.float32)
    head = Head(CLASSIFICATION, ("0", "1"), zeros, zeros[0, :1])
    copy = folder / path.name
    write_release(copy, bundle, head, {})
    return copy


def rounded(lexical: Lexical) -> Lexical:
    """A lexical view as a bundle stores it; rounding it again changes nothing.

    Args:
        lexical: Any view.

    Returns:
        The view with its frequencies in steps of 1/255 of the largest, and each logit's weights in
        steps of 1/127.
    """
    return read_lexical(*_codes(lexical))


def lexical_files(lexical: Lexical) -> dict[str, bytes]:
    """The files of a lexical view, which store it as ``rounded`` returns it."""
    idf, weight, scales = _codes(lexical)
    return {
        layout.LEXICAL_IDF: array_bytes(idf),
        layout.LEXICAL_WEIGHT: array_bytes(weight),
        layout.LEXICAL_SCALES: array_bytes(scales),
    }


def _check(value: object, kind: type, name: str) -> None:
    """Raise DataError if an argument is of a wrong type."""
    if not isinstance(value, kind):
        raise DataError(f"{name} is {with_article(kind.__name__)}, not {shown(value)}")


def _read_all(bundle: Bundle, without: tuple[str, ...] = ()) -> dict[str, bytes]:
    names = [name for name in bundle.manifest.files if not name.startswith(without)]
    return {name: bundle.read(name) for name in names}


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


def _external_files(
    name: str, version: str, dimension: int, probes: Mapping[str, Sequence[float]]
) -> dict[str, bytes]:
    """The files of an encoder.

    Args:
        name: The encoder's name.
        version: Its version.
        dimension: Length of an embedding.
        probes: Expected embeddings, (dimension,), by 1 to 16 inputs.

    Raises:
        DataError: A name is invalid, or the probes are not such embeddings.
    """
    try:
        embeddings = np.array(list(probes.values()), dtype=np.float32)
        identity = {"name": name, "version": version, "dimension": dimension}
        files = {
            layout.ENCODER: json.dumps(identity, sort_keys=True).encode(),
            layout.ENCODER_INPUTS: json.dumps(list(probes)).encode(),
            layout.ENCODER_EMBEDDINGS: array_bytes(embeddings),
        }
        read_encoder(dimension, files.__getitem__)
        read_probes(dimension, files.__getitem__)
    except BundleFormatError as error:
        raise DataError(f"not an encoder with its probes: {error}") from error
    except (TypeError, ValueError, RecursionError):  # whose messages quote a probe
        raise DataError(
            "not an encoder with its probes: its name and version are texts, and its probes' "
            "embeddings numbers, of one length"
        ) from None
    return files


def _codes(
    lexical: Lexical,
) -> tuple[NDArray[np.uint8], NDArray[np.int8], NDArray[np.float32]]:
    idf = lexical.lexicon.idf
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


def versions(*packages: str) -> dict[str, str]:
    """The installed versions of packages, for the manifest."""
    return {package: metadata.version(package) for package in packages}
