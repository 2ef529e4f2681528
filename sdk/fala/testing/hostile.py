"""Bundles of a hostile vendor: signed correctly, and made to harm the device that installs them.

    from fala.testing.hostile import KINDS, write_hostile
    for kind in KINDS:
        write_hostile(kind, "release.fala", f"{kind}.fala", earlier="old.fala")

Every one has right digests, so that the defect reaches the part that must reject it. Graphs are
made with the ``onnx`` package.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fala.bundle import format as layout
from fala.bundle.archive import write_archive
from fala.bundle.arrays import array_bytes
from fala.bundle.reading import Bundle
from fala.errors import DataError
from fala.testing.hostile_graphs import GRAPHS, Changes

__all__ = ["KINDS", "Changes", "repack", "write_hostile"]

_FAR = 10**9
_LONG = 1_000_000


def repack(
    release: str | os.PathLike[str],
    path: str | os.PathLike[str],
    changes: Changes,
) -> Path:
    """Write a release again with changes, and with digests that fit them.

    Args:
        release: The release's file.
        path: Where to write.
        changes: What is different.

    Returns:
        The path.

    Raises:
        BundleError: The release cannot be read.
        OSError: It cannot be written.
    """
    contents = {**Bundle.open(release).contents(), **changes.files}
    files = {name: data for name, data in contents.items() if data is not None}
    manifest = json.loads(files.pop(layout.MANIFEST))
    manifest.update(changes.manifest)
    manifest["files"] = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    target = Path(path)
    write_archive(target, {**files, layout.MANIFEST: json.dumps(manifest).encode()})
    return target


def write_hostile(
    kind: str,
    release: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    earlier: str | os.PathLike[str] | None = None,
) -> Path:
    """Write a hostile bundle.

    Args:
        kind: One of ``KINDS``.
        release: A sound release with an ONNX backbone.
        path: Where to write.
        earlier: The release that the device has; a bridge from its backbone is what some kinds
            attack.

    Returns:
        The path.

    Raises:
        DataError: There is no such kind, the release has no ONNX backbone, or the ``onnx`` package
            is missing.
    """
    if kind not in _MAKERS:
        raise DataError(f"no hostile bundle {kind!r:.40}; there are {', '.join(KINDS)}")
    bundle = Bundle.open(release)
    if bundle.manifest.kind != layout.ONNX:
        raise DataError(f"{os.fspath(release)}: hostile bundles are made of ONNX releases")
    source = Bundle.open(release if earlier is None else earlier)
    return repack(release, path, _MAKERS[kind](bundle, source))


# Tokenizers


def _tokenizer(change: Callable[[dict[str, Any]], None]) -> Callable[[Bundle, Bundle], Changes]:
    def make(bundle: Bundle, _: Bundle) -> Changes:
        tokenizer = json.loads(bundle.read(layout.TOKENIZER))
        change(tokenizer)
        return Changes({layout.TOKENIZER: json.dumps(tokenizer).encode()})

    return make


def _normalizer(*parts: Mapping[str, Any]) -> Callable[[Bundle, Bundle], Changes]:
    sequence = {"type": "Sequence", "normalizers": [dict(part) for part in parts]}
    return _tokenizer(lambda tokenizer: tokenizer.update(normalizer=sequence))


def _replace(pattern: Mapping[str, str], content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": dict(pattern), "content": content}


def _charsmap(trie: int) -> str:
    return base64.b64encode(struct.pack("<I", trie) + bytes(64)).decode()


def _split(pattern: str) -> Callable[[Bundle, Bundle], Changes]:
    part = {
        "type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False,
    }  # fmt: skip
    return _tokenizer(lambda tokenizer: tokenizer.update(pre_tokenizer=part))


def _empty_vocabulary(tokenizer: dict[str, Any]) -> None:
    tokenizer["model"]["vocab"] = {} if isinstance(tokenizer["model"]["vocab"], dict) else []


def _far_token(tokenizer: dict[str, Any]) -> None:
    vocabulary = tokenizer["model"]["vocab"]
    if isinstance(vocabulary, dict):
        vocabulary[next(reversed(vocabulary))] = _FAR
    else:
        vocabulary.extend([[f"far{number}", -1.0] for number in range(10_000)])


def _far_template(tokenizer: dict[str, Any]) -> None:
    tokenizer["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "far", "type_id": 0}},
                   {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {"far": {"id": "far", "ids": [_FAR], "tokens": ["far"]}},
    }  # fmt: skip


def _long_template(tokenizer: dict[str, Any]) -> None:
    tokenizer["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"Sequence": {"id": "A", "type_id": 0}}] * 10_000,
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {},
    }


# Heads, bridges, priors, manifests


def _head(bundle: Bundle, _: Bundle) -> Changes:
    weight = bundle.manifest.dimension
    return Changes({layout.HEAD_WEIGHT: array_bytes(np.full((1, weight), np.nan, np.float32))})


def _bridge(rows: int, filled: float = 0.1) -> Callable[[Bundle, Bundle], Changes]:
    def make(bundle: Bundle, source: Bundle) -> Changes:
        folder = f"{layout.BRIDGES}{source.backbone_digest}"
        width = bundle.manifest.dimension
        shape = (source.manifest.dimension + rows, width)
        parts = (np.full(shape, filled), np.zeros(width), np.ones(width))
        return Changes({
            f"{folder}/{name}": array_bytes(part.astype(np.float16))
            for name, part in zip(layout.BRIDGE_FILES, parts, strict=True)
        })  # fmt: skip

    return make


def _prior(width: int, filled: float) -> Callable[[Bundle, Bundle], Changes]:
    def make(bundle: Bundle, _: Bundle) -> Changes:
        size = bundle.manifest.dimension + 1 + width
        return Changes({
            layout.PRIOR_MEAN: array_bytes(np.full(size, filled, np.float32)),
            layout.PRIOR_VARIANCE: array_bytes(np.ones(size, np.float32)),
            layout.PRIOR_FACTORS: array_bytes(np.zeros((1, size), np.float32)),
        })  # fmt: skip

    return make


def _manifest(**fields: object) -> Callable[[Bundle, Bundle], Changes]:
    return lambda bundle, source: Changes(manifest=fields)


def _padding(bundle: Bundle, _: Bundle) -> Changes:
    return Changes(manifest={"details": {**bundle.manifest.details, "pad_id": _FAR}})


_E, _ESCAPE = {"String": "e"}, "\x1b]0;owned\x07\x1b[2J"

_MAKERS: dict[str, Callable[[Bundle, Bundle], Changes]] = {
    **GRAPHS,
    "padding far off": _padding,
    "replace": _normalizer(_replace(_E, "e" * _LONG)),
    "replace often": _normalizer(*[_replace(_E, "e" * 8)] * 8),
    "replace by pattern": _normalizer(_replace({"Regex": "."}, "e" * 60)),
    "prepend": _normalizer({"type": "Prepend", "prepend": "e" * _LONG}),
    "prepend often": _normalizer(*[{"type": "Prepend", "prepend": "e" * 60}] * 5_000),
    "huge charsmap": _normalizer(
        {"type": "Precompiled", "precompiled_charsmap": _charsmap(0xFFFFFFFC)}
    ),
    "charsmap out of bounds": _normalizer(
        {"type": "Precompiled", "precompiled_charsmap": _charsmap(64)}
    ),
    "exponential pattern": _split("(e+)+$"),
    "empty vocabulary": _tokenizer(_empty_vocabulary),
    "token far off": _tokenizer(_far_token),
    "template far off": _tokenizer(_far_template),
    "template often": _tokenizer(_long_template),
    "random tokens": _tokenizer(lambda tokenizer: tokenizer["model"].update(dropout=0.5)),
    "head of no numbers": _head,
    "bridge too short": _bridge(-1),
    "bridge too long": _bridge(3),
    "bridge of no numbers": _bridge(0, np.nan),
    "prior too long": _prior(2, 0.0),
    "prior of no numbers": _prior(0, np.nan),
    "name with escapes": _manifest(name=f"good{_ESCAPE}"),
    "labels with escapes": _manifest(labels=["0", f"1{_ESCAPE}"]),
    "precision with escapes": _manifest(precision=_ESCAPE),
}

#: What there is to attack with, by name.
KINDS: tuple[str, ...] = tuple(_MAKERS)
