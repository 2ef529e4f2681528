"""Bundles of a hostile vendor: signed correctly, and made to harm the device that installs them.

    from hostile_bundles import KINDS, write_hostile
    for kind in KINDS:
        write_hostile(kind, "release.fala", f"{kind}.fala", earlier="old.fala")

Each has right digests, so that the defect reaches the part that must reject it.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bundles import repacked
from fala.bundle import format as layout
from fala.bundle.arrays import array_bytes
from fala.bundle.reading import Bundle


@dataclass(frozen=True)
class Changes:
    """Changes of a release by a hostile vendor.

    Attributes:
        files: New content by name; None removes a file.
        manifest: New values in the manifest.
    """

    files: Mapping[str, bytes | None] = field(default_factory=dict)
    manifest: Mapping[str, Any] = field(default_factory=dict)


def repack(release: Path, path: Path, changes: Changes) -> Path:
    """Write a release again with changes and matching digests; return the new file's path."""
    path.write_bytes(repacked(release, changes.files, **changes.manifest))
    return path


def write_hostile(kind: str, release: Path, path: Path, *, earlier: Path | None = None) -> Path:
    """Write a hostile bundle, and return its path.

    Args:
        kind: One of ``KINDS``.
        release: A sound release with an ONNX backbone.
        path: The new file.
        earlier: The release on the device; some kinds attack by a bridge from its backbone.
    """
    source = Bundle.open(release if earlier is None else earlier)
    return repack(release, path, _MAKERS[kind](Bundle.open(release), source))


def _replace(pattern: Mapping[str, str], content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


def _precompiled(trie: int) -> dict[str, Any]:
    """A table of normal forms that claims some bytes for its trie."""
    table = struct.pack("<I", trie) + bytes(64)
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(table).decode()}


def _template(single: list[Any], special: Mapping[str, Any]) -> dict[str, Any]:
    pair = [{"Sequence": {"id": name, "type_id": 0}} for name in ("A", "B")]
    return {
        "type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special,
    }  # fmt: skip


_FAR = 10**9
_LONG = 1_000_000
_E, _TEXT = {"String": "e"}, {"Sequence": {"id": "A", "type_id": 0}}
_ESCAPE = "\x1b]0;owned\x07\x1b[2J"

_NORMALIZERS: dict[str, list[Mapping[str, Any]]] = {
    "replace": [_replace(_E, "e" * _LONG)],
    "replace often": [_replace(_E, "e" * 8)] * 8,
    "replace by pattern": [_replace({"Regex": "."}, "e" * 60)],
    "prepend": [{"type": "Prepend", "prepend": "e" * _LONG}],
    "prepend often": [{"type": "Prepend", "prepend": "e" * 60}] * 5_000,
    "huge charsmap": [_precompiled(0xFFFFFFFC)],
    "charsmap out of bounds": [_precompiled(64)],
}

#: Parts of a tokenizer.
_PARTS: dict[str, Mapping[str, Any]] = {
    **{
        kind: {"normalizer": {"type": "Sequence", "normalizers": parts}}
        for kind, parts in _NORMALIZERS.items()
    },
    "exponential pattern": {"pre_tokenizer": {
        "type": "Split", "pattern": {"Regex": "(e+)+$"}, "behavior": "Isolated", "invert": False,
    }},
    "template far off": {"post_processor": _template(
        [{"SpecialToken": {"id": "far", "type_id": 0}}, _TEXT],
        {"far": {"id": "far", "ids": [_FAR], "tokens": ["far"]}},
    )},
    "template often": {"post_processor": _template([_TEXT] * 10_000, {})},
}  # fmt: skip

#: Fields of the manifest.
_FIELDS: dict[str, Mapping[str, Any]] = {
    "name with escapes": {"name": f"good{_ESCAPE}"},
    "labels with escapes": {"labels": ["0", f"1{_ESCAPE}"]},
    "precision with escapes": {"precision": _ESCAPE},
}


def _tokenizer(parts: Mapping[str, Any], bundle: Bundle, _: Bundle) -> Changes:
    tokenizer = json.loads(bundle.read(layout.TOKENIZER))
    return Changes({layout.TOKENIZER: json.dumps({**tokenizer, **parts}).encode()})


def _random_tokens(bundle: Bundle, source: Bundle) -> Changes:
    model = json.loads(bundle.read(layout.TOKENIZER))["model"]
    return _tokenizer({"model": {**model, "dropout": 0.5}}, bundle, source)


def _empty_vocabulary(bundle: Bundle, source: Bundle) -> Changes:
    model = json.loads(bundle.read(layout.TOKENIZER))["model"]
    return _tokenizer({"model": {**model, "vocab": type(model["vocab"])()}}, bundle, source)


def _far_token(bundle: Bundle, source: Bundle) -> Changes:
    model = json.loads(bundle.read(layout.TOKENIZER))["model"]
    if isinstance(model["vocab"], dict):
        model["vocab"][next(reversed(model["vocab"]))] = _FAR
    else:
        model["vocab"].extend([[f"far{number}", -1.0] for number in range(10_000)])
    return _tokenizer({"model": model}, bundle, source)


def _padding(bundle: Bundle, _: Bundle) -> Changes:
    return Changes(manifest={"details": {**bundle.manifest.details, "pad_id": _FAR}})


def _head(bundle: Bundle, _: Bundle) -> Changes:
    weight = np.full((1, bundle.manifest.dimension), np.nan, np.float32)
    return Changes({layout.HEAD_WEIGHT: array_bytes(weight)})


def _bridge(extra_rows: int, value: float, bundle: Bundle, source: Bundle) -> Changes:
    width = bundle.manifest.dimension
    matrix = np.full((source.manifest.dimension + extra_rows, width), value)
    parts = (matrix, np.zeros(width), np.ones(width))
    names = [f"{layout.BRIDGES}{source.backbone_digest}/{name}" for name in layout.BRIDGE_FILES]
    files = [array_bytes(part.astype(np.float16)) for part in parts]
    return Changes(dict(zip(names, files, strict=True)))


def _manifest(fields: Mapping[str, Any], *_: Bundle) -> Changes:
    return Changes(manifest=fields)


_MAKERS: dict[str, Callable[[Bundle, Bundle], Changes]] = {
    **{kind: partial(_tokenizer, parts) for kind, parts in _PARTS.items()},
    **{kind: partial(_manifest, fields) for kind, fields in _FIELDS.items()},
    "random tokens": _random_tokens,
    "empty vocabulary": _empty_vocabulary,
    "token far off": _far_token,
    "padding far off": _padding,
    "head of no numbers": _head,
    "bridge too short": partial(_bridge, -1, 0.1),
    "bridge too long": partial(_bridge, 3, 0.1),
    "bridge of no numbers": partial(_bridge, 0, np.nan),
}

#: Names of the hostile bundles.
KINDS: tuple[str, ...] = tuple(_MAKERS)
