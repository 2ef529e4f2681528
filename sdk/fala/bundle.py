"""A vendor's release as one file: a zip of stored entries under a manifest of digests.

Reading never extracts: every byte is checked against the manifest and parsed in memory, so there
is nothing on disk that could have changed between check and use.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fala import bundle_format as layout
from fala.backbones import Backbone, OnnxEncoder, WordVectors
from fala.errors import (
    BundleDigestError,
    BundleError,
    BundleFilesError,
    BundleFormatError,
    BundleVersionError,
    DimensionError,
    ExternalDataError,
)
from fala.examples import CLASSIFICATION, MATCHING
from fala.files import write_atomically
from fala.heads import Head
from fala.onnx_wire import has_external_data

_CHUNK = 1 << 20
# Every entry carries the zip format's earliest time, so that equal content is equal bytes.
_ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Manifest:
    """What a bundle says of itself.

    Attributes:
        name: The vendor's name of the backbone, for people.
        kind: ``"onnx"`` or ``"word-vectors"``.
        dimension: Length of an embedding.
        precision: How weights are stored: ``"fp32"``, ``"int8"`` or ``"float16"``.
        max_length: Tokens of a text that are read (None: all).
        task: ``"classification"`` or ``"matching"``; None for a backbone without a head.
        labels: The classes' names in the order of the logits; two for a binary head and a
            matcher, whose one logit is the second's. Empty for a backbone without a head.
        details: Anything else worth keeping (the padding token's id, parity, provenance).
        files: SHA-256 of every file but the manifest, by name.
        format_version: Version of the layout, see ``fala.bundle_format``.
    """

    name: str
    kind: str
    dimension: int
    precision: str
    max_length: int | None = None
    task: str | None = None
    labels: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    format_version: int = layout.FORMAT_VERSION

    def to_json(self) -> bytes:
        """Serialize, with sorted keys: the same manifest gives the same bytes."""
        return json.dumps(asdict(self), indent=2, sort_keys=True, allow_nan=False).encode()


class Bundle:
    """An opened and verified bundle.

    Use ``Bundle.open``. The object holds no file open and no weights; ``backbone`` and ``head``
    read theirs, verified again, when called.

    Attributes:
        path: The bundle's file.
        manifest: What it says of itself.
    """

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Bundle:
        """Open a bundle and verify all of it.

        Args:
            path: The bundle's file.

        Raises:
            BundleFormatError: Not a bundle, or a manifest that cannot be read.
            BundleVersionError: A format version that this SDK does not know.
            BundleFilesError: A missing, extra or duplicate file, or an unsafe path.
            BundleDigestError: A file's bytes are not those that the vendor packed.
            ExternalDataError: The ONNX model keeps weights outside its file.
            DimensionError: The head's dimension is not the backbone's.
        """
        path = Path(path)
        with _archive(path) as archive:
            entries = _safe_entries(archive, path)
            manifest = _read_manifest(archive, entries, path)
            _check_file_list(set(entries) - {layout.MANIFEST}, manifest, path)
            for name, digest in manifest.files.items():
                if _digest_of(archive, name, path) != digest:
                    raise BundleDigestError(
                        f"{path}: {name} is not what the vendor packed (SHA-256 differs); "
                        "download the bundle again"
                    )
        bundle = cls(path, manifest)
        bundle._check_parts()
        return bundle

    def read(self, name: str) -> bytes:
        """Read one file of the bundle.

        Args:
            name: A name of ``manifest.files``.

        Raises:
            BundleDigestError: The file changed since the bundle was opened.
            BundleFilesError: The bundle has no such file.
        """
        if name not in self.manifest.files:
            raise BundleFilesError(f"{self.path}: no file {name} in this bundle")
        with _archive(self.path) as archive:
            data = _read_entry(archive, name, self.path)
        if hashlib.sha256(data).hexdigest() != self.manifest.files[name]:
            raise BundleDigestError(f"{self.path}: {name} changed after the bundle was verified")
        return data

    def backbone(self) -> Backbone:
        """Load the backbone.

        Raises:
            BundleFormatError: A file cannot be read as what it should be.
            DimensionError: Its embeddings are not of the manifest's dimension.
        """
        manifest = self.manifest
        backbone: Backbone
        if manifest.kind == layout.ONNX:
            pad_id = manifest.details.get("pad_id", 0)
            backbone = OnnxEncoder(
                self.read(layout.ONNX_MODEL),
                self.read(layout.TOKENIZER),
                max_length=manifest.max_length,
                pad_id=pad_id if isinstance(pad_id, int) else 0,
            )
        else:
            scales = self._array(layout.SCALES) if layout.SCALES in manifest.files else None
            try:
                vocabulary = self.read(layout.VOCABULARY).decode().removesuffix("\n").split("\n")
            except UnicodeDecodeError as error:
                raise BundleFormatError(f"{self.path}: the vocabulary is not UTF-8") from error
            backbone = WordVectors(vocabulary, self._array(layout.VECTORS), scales)
        if backbone.dimension != manifest.dimension:
            raise DimensionError(
                f"{self.path}: the backbone's embeddings have {backbone.dimension} dimensions, "
                f"the manifest says {manifest.dimension}"
            )
        return backbone

    def head(self) -> Head | None:
        """Load the vendor's head, or None where the bundle is a backbone only.

        Raises:
            DimensionError: It is made for embeddings of another dimension.
            BundleFormatError: An array cannot be read, or does not fit the labels.
        """
        manifest = self.manifest
        if manifest.task is None:
            return None
        query = self._array(layout.HEAD_QUERY) if layout.HEAD_QUERY in manifest.files else None
        head = Head(
            task=manifest.task,
            labels=manifest.labels,
            weight=self._array(layout.HEAD_WEIGHT),
            bias=self._array(layout.HEAD_BIAS),
            query=query,
        )
        if head.dimension != manifest.dimension:
            raise DimensionError(
                f"{self.path}: the head takes embeddings of {head.dimension} dimensions, "
                f"the backbone gives {manifest.dimension}"
            )
        return head

    @property
    def backbone_digest(self) -> str:
        """SHA-256 over the backbone's files and how they are read; the embeddings' provenance."""
        manifest = self.manifest
        parts = [manifest.kind, str(manifest.max_length), str(manifest.details.get("pad_id"))]
        return _digest_over(parts, manifest.files, "backbone/")

    @property
    def head_digest(self) -> str:
        """SHA-256 over the head's files, task and labels."""
        parts = [str(self.manifest.task), *self.manifest.labels]
        return _digest_over(parts, self.manifest.files, "head/")

    def _array(self, name: str) -> NDArray[Any]:
        try:
            return np.lib.format.read_array(io.BytesIO(self.read(name)), allow_pickle=False)
        except (ValueError, EOFError, MemoryError) as error:
            raise BundleFormatError(f"{self.path}: {name} is not a NumPy array: {error}") from error

    def _check_parts(self) -> None:
        if self.manifest.kind == layout.ONNX:
            try:
                external = has_external_data(self.read(layout.ONNX_MODEL))
            except ValueError as error:
                raise BundleFormatError(
                    f"{self.path}: {layout.ONNX_MODEL} is not an ONNX model: {error}"
                ) from error
            if external:
                raise ExternalDataError(
                    f"{self.path}: the ONNX model keeps weights outside its own file; "
                    "export it as a single file"
                )
        self.head()


def write_bundle(
    path: str | os.PathLike[str], manifest: Manifest, files: Mapping[str, bytes]
) -> Manifest:
    """Write a bundle, whole or not at all.

    The same manifest and files give the same bytes.

    Args:
        path: Where to write; replaced if it exists.
        manifest: What the bundle is; its ``files`` and ``format_version`` are filled in.
        files: Content by name (names in ``fala.bundle_format``), without the manifest.

    Returns:
        The manifest as written.

    Raises:
        BundleError: The result would not open: the file is verified before it takes its name.
        OSError: It cannot be written.
    """
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in sorted(files.items())}
    manifest = replace(manifest, files=digests, format_version=layout.FORMAT_VERSION)

    def write(temporary: Path) -> None:
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive:
            for name, data in [(layout.MANIFEST, manifest.to_json()), *sorted(files.items())]:
                entry = zipfile.ZipInfo(name, _ZIP_EPOCH)
                entry.external_attr = 0o644 << 16
                archive.writestr(entry, data)
        Bundle.open(temporary)

    write_atomically(Path(path), write)
    return manifest


def write_release(
    path: str | os.PathLike[str], backbone: Bundle, head: Head, details: Mapping[str, Any]
) -> Manifest:
    """Write a release: a backbone's bundle with a global head.

    Args:
        path: Where to write.
        backbone: The bundle that gives the backbone; a head in it is left behind.
        head: The global head, made for this backbone's embeddings.
        details: What to note about the head (its training data, say), beside the backbone's.

    Returns:
        The manifest as written.

    Raises:
        DimensionError: The head is made for another dimension.
    """
    manifest = replace(
        backbone.manifest,
        task=head.task,
        labels=head.labels,
        details={**backbone.manifest.details, **details},
    )
    files = {
        name: backbone.read(name)
        for name in backbone.manifest.files
        if not name.startswith("head/")
    }
    files[layout.HEAD_WEIGHT] = array_bytes(head.weight)
    files[layout.HEAD_BIAS] = array_bytes(head.bias)
    if head.query is not None:
        files[layout.HEAD_QUERY] = array_bytes(head.query)
    return write_bundle(path, manifest, files)


def array_bytes(array: NDArray[Any]) -> bytes:
    """An array in NumPy's file format (.npy), without pickles."""
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.ascontiguousarray(array), allow_pickle=False)
    return buffer.getvalue()


def _archive(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except zipfile.BadZipFile as error:
        raise BundleFormatError(f"{path}: not a bundle: {error}") from error
    except FileNotFoundError as error:
        raise BundleError(f"{path}: no such file") from error
    except OSError as error:
        raise BundleError(f"{path}: cannot be read: {error.strerror or error}") from error


def _safe_entries(archive: zipfile.ZipFile, path: Path) -> list[str]:
    names: list[str] = []
    for entry in archive.infolist():
        # orig_filename: zipfile cuts a name at a NUL byte, which would hide what the file says.
        name = entry.orig_filename
        pure = PurePosixPath(name)
        if (
            pure.is_absolute()
            or ".." in pure.parts
            or "\\" in name
            or ":" in name
            or "\0" in name
            or name != str(pure)
        ):
            raise BundleFilesError(f"{path}: unsafe path in the archive: {name!r}")
        if name in names:
            raise BundleFilesError(f"{path}: {name} is in the archive twice")
        if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 0x1:
            raise BundleFormatError(
                f"{path}: {name} is compressed or encrypted; entries are stored"
            )
        names.append(name)
    return names


def _read_entry(archive: zipfile.ZipFile, name: str, path: Path) -> bytes:
    try:
        return archive.read(name)
    except KeyError as error:
        raise BundleFilesError(f"{path}: {name} is missing") from error
    except (zipfile.BadZipFile, EOFError, NotImplementedError) as error:
        # The zip's own checksum fails before the digest is asked.
        raise BundleDigestError(f"{path}: {name} is damaged: {error}") from error


def _digest_of(archive: zipfile.ZipFile, name: str, path: Path) -> str:
    digest = hashlib.sha256()
    try:
        with archive.open(name) as stream:
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
    except (zipfile.BadZipFile, EOFError, NotImplementedError) as error:
        raise BundleDigestError(f"{path}: {name} is damaged: {error}") from error
    return digest.hexdigest()


def _read_manifest(archive: zipfile.ZipFile, entries: list[str], path: Path) -> Manifest:
    if layout.MANIFEST not in entries:
        raise BundleFormatError(f"{path}: not a bundle: it has no {layout.MANIFEST}")
    if archive.getinfo(layout.MANIFEST).file_size > layout.MAX_MANIFEST_BYTES:
        raise BundleFormatError(f"{path}: the manifest is larger than any real one")
    try:
        raw = json.loads(_read_entry(archive, layout.MANIFEST, path))
    except (ValueError, RecursionError) as error:
        raise BundleFormatError(f"{path}: the manifest is not JSON: {error}") from error
    if not isinstance(raw, dict):
        raise BundleFormatError(f"{path}: the manifest is not a JSON object")
    version = raw.get("format_version")
    if version != layout.FORMAT_VERSION or isinstance(version, bool):
        raise BundleVersionError(
            f"{path}: format version {version!r}; this SDK reads version "
            f"{layout.FORMAT_VERSION}: update fala, or export the bundle for this version"
        )
    return _parse_manifest(raw, path)


def _parse_manifest(raw: dict[str, Any], path: Path) -> Manifest:
    def texts(value: object) -> bool:
        return isinstance(value, list) and all(isinstance(item, str) for item in value)

    def count(value: object) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and value > 0

    task, labels, files = raw.get("task"), raw.get("labels"), raw.get("files")
    problems = [
        text
        for text, wrong in [
            ("name is not a text", not isinstance(raw.get("name"), str)),
            (f"kind is not one of {', '.join(layout.BACKBONE_FILES)}",
             raw.get("kind") not in list(layout.BACKBONE_FILES)),
            ("dimension is not a positive whole number", not count(raw.get("dimension"))),
            ("precision is not a text", not isinstance(raw.get("precision"), str)),
            ("max_length is neither null nor a positive whole number",
             raw.get("max_length") is not None and not count(raw.get("max_length"))),
            ("task is unknown", task not in (None, CLASSIFICATION, MATCHING)),
            ("labels are not a list of texts", not texts(labels)),
            ("details are not an object", not isinstance(raw.get("details"), dict)),
            ("files are not an object of texts",
             not isinstance(files, dict) or not texts(list(files.values()))),
        ]
        if wrong
    ]  # fmt: skip
    if problems:
        raise BundleFormatError(f"{path}: the manifest cannot be read: {'; '.join(problems)}")
    known = {name: raw[name] for name in Manifest.__dataclass_fields__ if name in raw}
    return Manifest(**{**known, "labels": tuple(raw["labels"])})


def _check_file_list(present: set[str], manifest: Manifest, path: Path) -> None:
    required = set(manifest.files) | set(layout.BACKBONE_FILES[manifest.kind])
    if manifest.task is not None:
        required |= {layout.HEAD_WEIGHT, layout.HEAD_BIAS}
    if missing := required - present:
        raise BundleFilesError(f"{path}: missing from the archive: {', '.join(sorted(missing))}")
    if extra := present - set(manifest.files):
        raise BundleFilesError(f"{path}: not in the manifest: {', '.join(sorted(extra))}")


def _digest_over(parts: list[str], files: Mapping[str, str], folder: str) -> str:
    chosen = {name: digest for name, digest in files.items() if name.startswith(folder)}
    return hashlib.sha256(json.dumps([parts, chosen], sort_keys=True).encode()).hexdigest()
