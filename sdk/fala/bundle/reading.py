"""A vendor's release as one file: an archive under a manifest of digests.

Reading never extracts: every byte is checked against the manifest and parsed in memory, so there
is nothing on disk that could have changed between check and use.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fala.audit.model import check_onnx
from fala.backbones import Backbone
from fala.backbones.allocator import give_back
from fala.backbones.state import EncoderState, provenance
from fala.bundle import format as layout
from fala.bundle.adapter import check_base, read_state, state_digest
from fala.bundle.archive import read_file, read_index
from fala.bundle.checks import check_digest, check_file_list, digest_of, digest_over, read_verified
from fala.bundle.encoder import examine
from fala.bundle.manifest import Manifest
from fala.bundle.parts import (
    base_of,
    check_scales,
    load_backbone,
    load_bridges,
    load_head,
    load_prior,
    load_prompts,
    scales_of,
)
from fala.errors import (
    BundleDigestError,
    BundleError,
    BundleFilesError,
    BundleFormatError,
    safe_line,
)
from fala.files import path_of
from fala.model.bridge import Bridge
from fala.model.heads import Head
from fala.model.prior import PopulationPrior


class Bundle:
    """An opened and verified bundle.

    Use ``Bundle.open``. The object holds no file open and no weights; ``backbone`` and ``head``
    read theirs, verified again, when called. One that was opened to be held has all of its
    verified bytes in memory, and reads nothing again.

    Attributes:
        path: The bundle's file.
        manifest: What it says of itself.
    """

    def __init__(
        self, path: Path, manifest: Manifest, held: Mapping[str, bytes] | None = None
    ) -> None:
        self.path = path
        self.manifest = manifest
        self._held: Mapping[str, bytes] = {} if held is None else held

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, hold: bool = False) -> Bundle:
        """Open a bundle and verify all of it.

        Args:
            path: The bundle's file.
            hold: Keep the verified bytes in memory, for a bundle that is loaded and installed at
                once: it is read and hashed one time, and what happens to the file afterwards does
                not matter.

        Raises:
            BundleFormatError: Not a bundle, or a manifest that cannot be read.
            BundleVersionError: A format version that this SDK does not know.
            BundleFilesError: A missing, extra or duplicate file, or an unsafe path.
            BundleDigestError: A file's bytes are not those that the vendor packed.
            ExternalDataError: The ONNX model keeps weights outside its file.
            DimensionError: The head's dimension is not the backbone's.
            BundleError: The file is missing or cannot be read.
            DataError: ``path`` is none.
        """
        file = path_of(path, "path")
        with blaming(file):
            return cls.verified(file, hold=hold)

    @classmethod
    def verified(cls, path: Path, *, hold: bool = False) -> Bundle:
        """A bundle whose errors do not name it yet; see ``open``."""
        mode = path.stat().st_mode
        if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode) or stat.S_ISSOCK(mode):
            raise BundleFormatError("not a bundle: not a file")  # opening it might wait for ever
        with path.open("rb") as stream:
            index = read_index(stream)
            if layout.MANIFEST not in index:
                raise BundleFormatError(f"not a bundle: it has no {layout.MANIFEST}")
            if index[layout.MANIFEST].size > layout.MAX_MANIFEST_BYTES:
                raise BundleFormatError("the manifest is larger than any real one")
            packed = read_file(stream, layout.MANIFEST, index[layout.MANIFEST])
            manifest = Manifest.from_json(packed)
            check_file_list(set(index) - {layout.MANIFEST}, manifest)
            # What is looked into is the bytes whose digest was taken. A backbone that nobody
            # looks into yet is too large to be kept for nothing.
            kept: dict[str, bytes] = {}
            for name, entry in index.items():
                if name == layout.MANIFEST:
                    kept[name] = packed
                elif hold or name == layout.ONNX_MODEL or not name.startswith(layout.BACKBONE):
                    kept[name] = read_verified(stream, name, entry, manifest)
                else:
                    check_digest(name, digest_of(stream, entry), manifest)
        bundle = cls(path, manifest, kept)
        if manifest.kind == layout.ONNX:
            check_onnx(kept[layout.ONNX_MODEL])
        check_scales(manifest, load_head(manifest, bundle._read))
        if bundle.base is not None:
            read_state(manifest, bundle._read)
        load_bridges(manifest, bundle._read)
        load_prior(manifest, bundle._read)
        load_prompts(manifest, bundle._read)
        return bundle if hold else cls(path, manifest)

    def read(self, name: str) -> bytes:
        """Read one file of the bundle.

        Args:
            name: A name of ``manifest.files``.

        Raises:
            BundleDigestError: The file changed since the bundle was opened.
            BundleFilesError: The bundle has no such file.
            BundleError: The bundle changed otherwise, or is gone.
        """
        with blaming(self.path):
            return self._read(name)

    def contents(self) -> Mapping[str, bytes]:
        """The bytes of all files, the manifest among them, as they were verified.

        Raises:
            BundleDigestError: The file changed since the bundle was opened; never of one held.
            BundleError: It is gone, or cannot be trusted any more.
        """
        if self._held:
            return self._held
        with blaming(self.path):
            again = self.verified(self.path, hold=True)
            if again != self:
                raise BundleDigestError("the file changed since it was opened")
        return again.contents()

    def backbone(self) -> Backbone:
        """Load the backbone.

        Raises:
            BundleFormatError: A file cannot be read as what it should be.
            DimensionError: Its embeddings are not of the manifest's dimension.
            BundleMismatchError: It is an adapter, and has none.
            BundleError: The bundle changed since it was opened, or is gone.
        """
        with blaming(self.path):
            backbone = load_backbone(self.manifest, self._read)
        give_back()
        return backbone

    def state(self) -> EncoderState:
        """What an adapter feeds to its backbone.

        Raises:
            BundleMismatchError: The bundle is no adapter.
            BundleFormatError: A file cannot be read, or does not fit the others.
            BundleError: The bundle changed since it was opened, or is gone.
        """
        with blaming(self.path):
            state = read_state(self.manifest, self._read)
        give_back()
        return state

    def check_base(self, backbone: Bundle) -> None:
        """Check that an adapter was made for another bundle's backbone.

        Raises:
            BundleMismatchError: It was made for another one, or the bundle is no adapter.
        """
        with blaming(self.path):
            check_base(self.base, backbone.backbone_digest, backbone.manifest.name)

    def examine(self) -> None:
        """Look at the backbone's files without loading them.

        Raises:
            BundleFormatError: They are not what they should be, or would cost more than any
                encoder's.
            BundleError: The bundle changed since it was opened, or is gone.
        """
        if self.manifest.kind in (layout.ONNX, layout.ORT):
            with blaming(self.path):
                examine(self.manifest, self._read)

    def head(self) -> Head | None:
        """Load the vendor's head, or None where the bundle is a backbone only.

        Raises:
            DimensionError: It is made for embeddings of another dimension.
            BundleFormatError: An array cannot be read, or does not fit the labels.
            BundleError: The bundle changed since it was opened, or is gone.
        """
        with blaming(self.path):
            return load_head(self.manifest, self._read)

    def bridges(self) -> dict[str, Bridge]:
        """The bridges from earlier backbones, by those backbones' digests.

        Raises:
            BundleFormatError: An array cannot be read, or does not fit the others.
            DimensionError: A bridge does not lead to embeddings of this backbone's dimension.
            BundleError: The bundle changed since it was opened, or is gone.
        """
        with blaming(self.path):
            return load_bridges(self.manifest, self._read)

    def prior(self) -> PopulationPrior | None:
        """The population prior of the head, or None where the vendor gave none.

        Raises:
            BundleFormatError: An array cannot be read, or does not fit the others.
            DimensionError: It is made for embeddings of another dimension.
            BundleError: The bundle changed since it was opened, or is gone.
        """
        with blaming(self.path):
            return load_prior(self.manifest, self._read)

    def prompts(self) -> NDArray[np.float16] | None:
        """The vendor's writers' prompts, or None where the release has none.

        Returns:
            Shape (K, layers, 2, heads, length, head_dimension), keys before values; the first is
            the unknown writer's.

        Raises:
            BundleFormatError: The array cannot be read, or is none of prompts.
            DimensionError: They are made for a backbone of another dimension.
            BundleError: The bundle changed since it was opened, or is gone.
        """
        with blaming(self.path):
            return load_prompts(self.manifest, self._read)

    @property
    def digest(self) -> str:
        """SHA-256 of the manifest, and so of all that it lists."""
        return hashlib.sha256(self.manifest.to_json()).hexdigest()

    def __eq__(self, other: object) -> bool:
        """Whether it is the same release, wherever it lies."""
        return self.manifest == other.manifest if isinstance(other, Bundle) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        manifest = self.manifest
        kind = "backbone" if manifest.task is None else f"{manifest.task} release"
        kind = kind if self.base is None else f"adapter for {self.base[:12]}"
        return f"<Bundle {manifest.name}: {kind}, {manifest.dimension} dimensions, {self.path}>"

    @property
    def scales(self) -> tuple[float, ...] | None:
        """The scales of the fit's blocks that public annotators chose; None where none are told."""
        return scales_of(self.manifest)

    @property
    def base(self) -> str | None:
        """The digest of the backbone that an adapter was made for; None of other bundles."""
        return base_of(self.manifest)

    @property
    def backbone_digest(self) -> str:
        """SHA-256 over the backbone's files and how they are read; the embeddings' provenance.

        Of an adapter it is that of its base when the adapter is fed to it.
        """
        manifest = self.manifest
        if self.base is not None:
            return provenance(self.base, EncoderState({}, state_digest(manifest)))
        parts = [manifest.kind, str(manifest.max_length), str(manifest.details.get("pad_id"))]
        return digest_over(parts, manifest.files, "backbone/")

    @property
    def head_digest(self) -> str:
        """SHA-256 over the files of the head and its lexical view, its task and labels."""
        parts = [str(self.manifest.task), *self.manifest.labels]
        return digest_over(parts, self.manifest.files, "head/", layout.LEXICAL)

    def _read(self, name: str) -> bytes:
        if not isinstance(name, str) or name not in self.manifest.files:
            raise BundleFilesError(f"no file {safe_line(name, 80)} in this bundle")
        if name in self._held:
            return self._held[name]
        with self.path.open("rb") as stream:
            index = read_index(stream)
            if name not in index:
                raise BundleDigestError(f"{name} is not in the archive any more")
            return read_verified(stream, name, index[name], self.manifest)


@contextmanager
def blaming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Name the bundle in every error that reading it raises."""
    try:
        yield
    except BundleError as error:
        raise type(error)(f"{os.fspath(path)}: {error}") from error
    except FileNotFoundError as error:
        raise BundleError(f"{os.fspath(path)}: no such file") from error
    except OSError as error:
        raise BundleError(
            f"{os.fspath(path)}: cannot be read: {error.strerror or error}"
        ) from error
