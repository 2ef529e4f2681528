"""A vendor's release as one file: an archive under a manifest of digests.

Nothing is extracted. Every byte is checked against the manifest and parsed in memory, so that no
file can change between check and use.
"""

from __future__ import annotations

import hashlib
import os
import stat
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from fala.audit.model import audit_model
from fala.audit.tokenizer import audit_tokenizer
from fala.backbones import AdapterWeights, Backbone, OnnxEncoder
from fala.backbones.external import Encoders, ExternalEncoder
from fala.backbones.onnx_encoder import give_back
from fala.base.errors import (
    BundleDigestError,
    BundleError,
    BundleFormatError,
    BundleMismatchError,
    check_flag,
    counted,
    safe_line,
)
from fala.base.files import check_path, failure
from fala.bundle import format as layout
from fala.bundle.archive import Entry, digest_of, read_entry, read_index
from fala.bundle.content import Content, Probes, read_adapter, read_table
from fala.bundle.manifest import Manifest
from fala.model.bridge import Bridge
from fala.model.heads import Head
from fala.model.scales import Scales


class Bundle:
    """An opened and verified bundle.

    Use ``Bundle.open``. The object holds no open file and no backbone, whose files ``backbone``
    reads and verifies again. A bundle opened with ``hold`` has all verified bytes in memory, and
    does not read the file again.

    Attributes:
        path: The bundle's file.
        content: The content that was read from it.

    Examples:
        >>> bundle = fala.Bundle.open(fala_sim.sample_release("bert"))
        >>> bundle.manifest.name, bundle.manifest.dimension, bundle.manifest.labels
        ('bert', 256, (0, 1))
        >>> bundle.backbone().encode(["a lovely match"]).shape
        (1, 256)
    """

    def __init__(
        self, path: Path, content: Content, held: Mapping[str, bytes] | None = None
    ) -> None:
        self.path = path
        self.content = content
        self._held: Mapping[str, bytes] = {} if held is None else held
        self._audited = False

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, hold: bool = False) -> Bundle:
        """Open a bundle and verify all of it.

        Args:
            path: The bundle's file.
            hold: Keep the verified bytes in memory, for a bundle that is loaded and installed: it
                is read and hashed once, and later changes of the file do not matter.

        Raises:
            BundleFormatError: Not a bundle; a missing, extra or duplicate file, or an unsafe path;
                the manifest or the ONNX model cannot be read; the model contains parts that no
                encoder needs, or keeps weights outside its file; or the head's dimension is not
                the backbone's.
            BundleVersionError: It has another format version.
            BundleDigestError: A file's bytes are not those that the vendor packed.
            BundleError: The file is missing or cannot be read.
            DataError: ``path`` is not a path, or ``hold`` is neither True nor False.
        """
        file = check_path(path, "path")
        return cls.verified(file, file, hold=check_flag(hold, "hold"))

    @classmethod
    def verified(cls, path: Path, name: Path, *, hold: bool = False) -> Bundle:
        """Open a file that will be moved to ``name``, which is the name in errors; see ``open``."""
        with named_errors(name):
            mode = path.stat().st_mode
            if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode) or stat.S_ISSOCK(mode):
                # Opening it might block forever.
                raise BundleFormatError("the path is not a bundle: it is not a file")
            with path.open("rb") as stream:
                index = read_index(stream)
                manifest_bytes = read_manifest(stream, index)
                manifest = Manifest.from_json(manifest_bytes)
                manifest.check_files(set(index) - {layout.MANIFEST})
                # A file is parsed from the hashed bytes. A backbone that is not parsed now is too
                # large to keep. The order is the archive's, which may be written again.
                contents: dict[str, bytes] = {}
                for file, entry in index.items():
                    if file == layout.MANIFEST:
                        contents[file] = manifest_bytes
                        continue
                    parsed = file == layout.ONNX_MODEL or not file.startswith(layout.BACKBONE)
                    if hold or parsed:
                        contents[file] = read_entry(stream, entry)
                        digest = hashlib.sha256(contents[file]).hexdigest()
                    else:
                        digest = digest_of(stream, entry)
                    _check_digest(file, digest, manifest)
            content = Content.of(manifest, contents.__getitem__)
        return cls(name, content, contents if hold else None)

    @classmethod
    def in_memory(cls, path: Path, files: Mapping[str, bytes]) -> Bundle:
        """Open a bundle whose files were read and verified elsewhere.

        Args:
            path: A name for errors.
            files: The bytes of all files, the manifest included.

        Raises:
            BundleError: A file is invalid.
        """
        with named_errors(path):
            manifest = Manifest.from_json(files[layout.MANIFEST])
            return cls(path, Content.of(manifest, files.__getitem__), files)

    def at(self, path: Path) -> Bundle:
        """Return the same bundle in another file, which is verified as it is read."""
        return Bundle(path, self.content)

    def read(self, name: str) -> bytes:
        """Read one file of the bundle.

        Args:
            name: A name of ``manifest.files``.

        Raises:
            BundleDigestError: The file changed since the bundle was opened.
            BundleFormatError: The bundle has no such file.
            BundleError: The bundle changed in another way, or is gone.
        """
        with named_errors(self.path):
            return self._read(name)

    def files(self) -> Mapping[str, bytes]:
        """Return the verified bytes of all files, the manifest included.

        Raises:
            BundleDigestError: The file changed since the bundle was opened (never with ``hold``).
            BundleError: The bundle is gone, or is no longer valid.
        """
        if self._held:
            return self._held
        again = self.verified(self.path, self.path, hold=True)
        if again != self:
            raise BundleDigestError(f"{self.path}: the file changed since it was opened")
        return again.files()

    def backbone(self, encoders: Encoders | None = None) -> Backbone:
        """Load the backbone.

        Args:
            encoders: The app's encoders, of which an external release uses one, after its probes
                confirm that it is the right one; None for no encoders.

        Raises:
            EncoderError: The app's encoder is another one, or failed.
            BundleFormatError: A file is invalid, or its embeddings are not of the manifest's
                dimension.
            BundleMismatchError: The bundle is an adapter, without a backbone.
            BundleError: The bundle changed since it was opened, or is gone.
        """
        with named_errors(self.path):
            if self.base is not None:
                raise BundleMismatchError(
                    f"an adapter, which has no backbone of its own; it is for {self.base[:12]}"
                )
            if self.external:
                backbone: Backbone = self._external(Encoders() if encoders is None else encoders)
            elif self.manifest.kind in layout.VECTOR_TABLES:
                backbone = read_table(self.manifest, self._read)
            else:
                backbone = self._encoder()
            if backbone.dimension != self.manifest.dimension:
                raise BundleFormatError(
                    f"the backbone's embeddings have {counted(backbone.dimension, 'dimension')}, "
                    f"the manifest says {self.manifest.dimension}"
                )
        give_back()
        return backbone

    def adapter(self) -> AdapterWeights:
        """Return the adapter's weights, as inputs of a backbone.

        Raises:
            BundleMismatchError: The bundle is no adapter.
            BundleFormatError: A file cannot be read, or does not fit the others.
            BundleError: The bundle changed since it was opened, or is gone.
        """
        with named_errors(self.path):
            adapter = read_adapter(self.manifest, self._read)
        give_back()
        return adapter

    def check_base(self, backbone: Bundle) -> None:
        """Check that an adapter was made for another bundle's backbone.

        Raises:
            BundleMismatchError: It was made for another one, or the bundle is no adapter.
        """
        with named_errors(self.path):
            if self.base is None:
                raise BundleMismatchError("the bundle is a backbone, not an adapter")
            digest = backbone.backbone_digest
            if self.base != digest:
                raise BundleMismatchError(
                    f"an adapter for the backbone {self.base[:12]}, and that of "
                    f"{backbone.manifest.title} is {digest[:12]}; ask the vendor for the task's "
                    "adapter to this one"
                )

    def audit(self, *, signed: bool) -> None:
        """Audit a transformer's files: no other library has read them. Other backbones are arrays.

        Args:
            signed: Whether the release is signed by the key that the device trusts, and may have a
                tokenizer's regular expression of no known family.

        Raises:
            BundleFormatError: They are invalid, or have what no encoder needs.
            BundleError: The bundle changed since it was opened, or is gone.
        """
        if self.manifest.kind == layout.ONNX:
            with named_errors(self.path):
                audit_model(self._read(layout.ONNX_MODEL))
                tokenizer = self._read(layout.TOKENIZER)
                audit_tokenizer(tokenizer, self.manifest.pad_id, signed=signed)
        self._audited = True

    def head(self) -> Head | None:
        """Return the vendor's head, or None if the bundle is a backbone only."""
        return self.content.head

    def bridges(self) -> Mapping[str, Bridge]:
        """Return the bridges from earlier backbones, by those backbones' digests."""
        return self.content.bridges

    @property
    def manifest(self) -> Manifest:
        """The bundle's manifest."""
        return self.content.manifest

    @property
    def digest(self) -> str:
        """SHA-256 of the manifest, which covers all files by their digests."""
        return self.manifest.digest

    @property
    def base(self) -> str | None:
        """The digest of the backbone that an adapter was made for; None for other bundles."""
        adapter = self.manifest.kind == layout.ADAPTER
        return str(self.manifest.details["base"]) if adapter else None

    @property
    def external(self) -> bool:
        """Whether the app's own encoder is the backbone."""
        return self.manifest.kind == layout.EXTERNAL

    @property
    def encoder(self) -> str | None:
        """The name, with its version, of the app's encoder that the bundle is for, or None."""
        return self.manifest.name if self.external else None

    @property
    def probes(self) -> Probes:
        """The probes of the app's encoder: n inputs, and their embeddings (n, d); n may be 0."""
        return self.content.probes

    @property
    def scales(self) -> tuple[Scales, ...]:
        """The fit's scales, chosen on public annotators, by number of labels; may be empty."""
        return self.manifest.scales

    @property
    def backbone_digest(self) -> str:
        """SHA-256 over the backbone's files and how they are read; the embeddings' provenance.

        For an adapter it is the digest of its base together with the adapter.
        """
        manifest = self.manifest
        if self.base is not None:
            weights = manifest.digest_over([], layout.ADAPTER_WEIGHTS)
            return hashlib.sha256(f"{self.base}\n{weights}".encode()).hexdigest()
        parts = [manifest.kind, str(manifest.max_length), str(manifest.details.get("pad_id"))]
        if self.external:
            parts += [manifest.name, str(manifest.dimension)]
        return manifest.digest_over(parts, layout.BACKBONE)

    @property
    def head_digest(self) -> str:
        """SHA-256 over the files of the head and its lexical view, its task and labels' names."""
        parts = [str(self.manifest.task), *map(str, self.manifest.labels)]
        return self.manifest.digest_over(parts, "head/", layout.LEXICAL)

    def __eq__(self, other: object) -> bool:
        """Return whether the other bundle is the same release, at any path."""
        return self.manifest == other.manifest if isinstance(other, Bundle) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        manifest = self.manifest
        kind = "backbone" if manifest.task is None else f"{manifest.task} release"
        kind = kind if self.base is None else f"adapter for {self.base[:12]}"
        dimensions = counted(manifest.dimension, "dimension")
        return f"<Bundle {manifest.title}: {kind}, {dimensions}, {self.path}>"

    # Errors of the methods below do not name the bundle.

    def _read(self, name: str) -> bytes:
        if not isinstance(name, str) or name not in self.manifest.files:
            raise BundleFormatError(f"this bundle has no file {safe_line(name, 80)}")
        if name in self._held:
            return self._held[name]
        with self.path.open("rb") as stream:
            index = read_index(stream)
            if name not in index:
                raise BundleDigestError(f"{name} is not in the archive any more")
            data = read_entry(stream, index[name])
        _check_digest(name, hashlib.sha256(data).hexdigest(), self.manifest)
        return data

    def _external(self, encoders: Encoders) -> ExternalEncoder:
        name, (inputs, expected) = str(self.encoder), self.probes
        function = encoders.of(name, probed=bool(inputs))
        encoder = ExternalEncoder(name, self.manifest.dimension, function)
        encoder.check(inputs, expected)
        return encoder

    def _encoder(self) -> OnnxEncoder:
        if not self._audited:
            # A vendor loads a release that is not signed yet; a device admits it before (slots).
            self.audit(signed=True)
        return OnnxEncoder(
            self._read(layout.ONNX_MODEL),
            self._read(layout.TOKENIZER),
            max_length=self.manifest.max_length,
            pad_id=self.manifest.pad_id,
        )


def read_manifest(stream: BinaryIO, index: Mapping[str, Entry]) -> bytes:
    """Return the manifest's bytes as packed.

    Args:
        stream: The bundle's archive.
        index: Its entries.

    Raises:
        BundleFormatError: There is none, or it is larger than any real one.
        BundleDigestError: Its content does not match the zip's checksum.
    """
    if layout.MANIFEST not in index:
        raise BundleFormatError(f"the file is not a bundle: it has no {layout.MANIFEST}")
    if index[layout.MANIFEST].size > layout.MAX_MANIFEST_BYTES:
        raise BundleFormatError("the manifest is larger than any real one")
    data = read_entry(stream, index[layout.MANIFEST])
    if zlib.crc32(data) != index[layout.MANIFEST].crc:
        raise BundleDigestError(f"{layout.MANIFEST} is damaged: its checksum differs")
    return data


@contextmanager
def named_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Name the bundle in every error that reading it raises."""
    try:
        yield
    except BundleError as error:
        raise type(error)(f"{os.fspath(path)}: {error}") from error
    except FileNotFoundError as error:
        raise BundleError(f"{os.fspath(path)}: no such file") from error
    except OSError as error:
        raise BundleError(f"{os.fspath(path)}: cannot be read: {failure(error)}") from error


def _check_digest(name: str, digest: str, manifest: Manifest) -> None:
    if digest != manifest.files[name]:
        raise BundleDigestError(
            f"{name} is not what the vendor packed (SHA-256 differs); download the bundle again"
        )
