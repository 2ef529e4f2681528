"""Check with the device's own admission that a device admits a bundle, before it is written."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fala.backbones.external import Encoders
from fala.base.errors import BundleError, FalaError
from fala.base.examples import CLASSIFICATION
from fala.base.files import temporary_folder, write_atomically
from fala.bundle.reading import Bundle
from fala.model.heads import Head
from fala.slots.admit import Origin, admit, admit_adapter
from fala_export.base.files import writing
from fala_export.bundle.writing import write_release


def check_admitted(path: Path, base: Path | None = None) -> dict[str, str]:
    """Check that a device admits a bundle, with the device's own audit and validation.

    A backbone without a head is checked with a head of zeros.

    Args:
        path: The bundle.
        base: The release or backbone that an adapter is for.

    Returns:
        ``must be signed`` with the reason, if a device admits the bundle only with the signature of
        a key that the device trusts; otherwise nothing.

    Raises:
        BundleError: A device would reject the bundle.
    """
    try:
        _admit(path, base, None)
        return {}
    except BundleError as unsigned:
        try:
            _admit(path, base, "repository")
        except BundleError as error:
            reason = str(error).rpartition(f"{path.name}: ")[2]
            raise type(error)(f"{path}: a device would reject it: {reason}") from error
        return {"must be signed": str(unsigned).rpartition(f"{path.name}: ")[2]}


def write_admitted(
    out: Path, make: Callable[[Path], Mapping[str, Any]], base: Path | None = None
) -> dict[str, Any]:
    """Make a bundle, and write it once a device would admit it.

    Args:
        out: Where to write; not changed if anything fails.
        make: A function that writes the bundle to a path and returns its summary.
        base: The base of an adapter; see ``check_admitted``.

    Returns:
        The summary with ``bundle``, and what ``check_admitted`` returns.

    Raises:
        BundleError: A device would reject the bundle.
        ExportError: The bundle cannot be written.
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


def _admit(path: Path, base: Path | None, origin: Origin) -> None:
    """Admit a bundle, and load it as a device does at its first use."""
    with temporary_folder() as folder:
        if base is None:
            released = admit(_with_head(path, folder), origin, Encoders())
        else:
            # The device already has the base, and knows where it came from.
            earlier = admit(_with_head(base, folder), "repository", Encoders())
            released = admit_adapter(path, origin, earlier)
        if not released.bundle.external:
            released.backbone.load()


def _with_head(path: Path, folder: Path) -> Path:
    """Return the path of a bundle with a head: the bundle's own, or a copy in a folder."""
    bundle = Bundle.open(path)
    if bundle.manifest.task is not None:
        return path
    zeros = np.zeros((1, bundle.manifest.dimension), dtype=np.float32)
    head = Head(CLASSIFICATION, (0, 1), zeros, zeros[0, :1])
    copy = folder / path.name
    write_release(copy, bundle, head, {})
    return copy
