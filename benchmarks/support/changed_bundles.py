"""Bundles changed by seed, and signed again, so that every parser meets what it does not expect."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fala import Bundle
from fala.release import ONNX, ONNX_MODEL, ORT, TOKENIZER, array_bytes
from fala.testing.hostile import KINDS, Changes, repack, write_hostile
from fala.testing.hostile_graphs import hostile_onnx

_NUMBERS = (
    -1, 0, 1, 2, 127, 255, 256, 65_535, 1 << 20, (1 << 31) - 1, 1 << 31, 1 << 40, (1 << 63) - 1,
    -(1 << 63), 1e30, -0.5,
)  # fmt: skip
_OPERATORS = (
    "Expand", "Tile", "Range", "ConstantOfShape", "Loop", "Reshape", "Concat", "MatMul", "NonZero",
    "Resize", "If", "Identity", "CumSum", "Pad", "Gather",
)  # fmt: skip
_STRINGS = ("", "\0", "e", "e" * 100_000, "\u2581", "[UNK]", "Sequence", "\x1b[2J", "(a+)+", ".*")


def _bytes(chance: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 4, 16))):
        at = chance.randrange(len(changed) + 1) if chance.random() < 0.5 else (
            chance.randrange(min(len(changed), 400) + 1)
        )  # fmt: skip
        what = chance.random()
        if what < 0.5 and at < len(changed):
            changed[at] = chance.choice(
                (0, 1, 127, 128, 255, changed[at] ^ 1 << chance.randrange(8))
            )
        elif what < 0.7:
            changed[at:at] = chance.randbytes(chance.choice((1, 2, 4, 8)))
        elif what < 0.85:
            del changed[at : at + chance.choice((1, 2, 4, 8, 64))]
        elif what < 0.95:
            changed[at : at + 8] = chance.choice((1 << 31, 1 << 40, 0)).to_bytes(8, "little")
        else:
            del changed[at:]
    return bytes(changed)


def _places(value: Any, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:  # noqa: ANN401
    """All places in a JSON value, as what holds them and where in it."""
    keys = value if isinstance(value, dict) else range(len(value))
    for key in keys:
        found.append((value, key))
        if isinstance(value[key], dict | list):
            _places(value[key], found)
    return found


def _json(chance: random.Random, data: bytes) -> bytes:
    value = json.loads(data)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        places = _places(value, [])
        # Words of the vocabulary are many: what they are in should be met as often as they are.
        few = places if chance.random() < 0.3 else places[: len(places) // 3 + 1]
        holder, key = chance.choice(few)
        other, place = chance.choice(places)
        choices = [
            chance.choice(_NUMBERS), chance.choice(_STRINGS), None, other[place],
            chance.choice(([], {}, True, False)), [holder[key]] * chance.choice((2, 1_000)),
        ]  # fmt: skip
        made = json.loads(json.dumps(chance.choice(choices)))
        if chance.random() < 0.15 and isinstance(holder, dict):
            del holder[key]
        else:
            holder[key] = made
    return json.dumps(value).encode()


def _graph(chance: random.Random, data: bytes) -> bytes:
    """Change a message of an ONNX model: a number, a name, an operator; or leave one out."""
    onnx = hostile_onnx()
    model = onnx.load_from_string(data)
    graph = model.graph
    for _ in range(chance.choice((1, 1, 2, 3))):
        node = chance.choice(graph.node)
        tensor = chance.choice(graph.initializer)
        names = [name for one in graph.node for name in (*one.input, *one.output)]
        names += [one.name for one in graph.initializer]
        what = chance.randrange(9)
        number = int(min(max(chance.choice(_NUMBERS), -(1 << 63)), (1 << 63) - 1))
        if what == 0:
            node.op_type = chance.choice(_OPERATORS)
        elif what == 1 and node.input:
            node.input[chance.randrange(len(node.input))] = chance.choice(names)
        elif what == 2 and tensor.dims:
            tensor.dims[chance.randrange(len(tensor.dims))] = number
        elif what == 3:
            tensor.data_type = chance.randrange(24)
        elif what == 4 and node.attribute:
            chance.choice(node.attribute).i = number
        elif what == 5:
            extra = chance.choice((*_OPERATORS, node.op_type))
            wanted = [chance.choice(names) for _ in range(chance.randrange(1, 4))]
            graph.node.append(onnx.helper.make_node(extra, wanted, [f"new{len(graph.node)}"]))
        elif what == 6:
            graph.node.remove(node)
            if not graph.node:
                break
        elif what == 7 and tensor.raw_data:
            tensor.raw_data = _bytes(chance, tensor.raw_data)
        else:
            dims = graph.output[0].type.tensor_type.shape.dim
            chance.choice(dims).dim_value = number
    return bytes(model.SerializeToString())


def _array(chance: random.Random, data: bytes) -> bytes:
    width = chance.choice((1, 7, 8, 9, 50, 1_000))
    shape = chance.choice(((width,), (1, width), (width, width), (2, width), (0, width)))
    filled = chance.choice((np.nan, np.inf, 0.0, 1.0, -1.0, 3e38, 65_504.0))
    dtype = chance.choice((np.float16, np.float32, np.float64))
    with np.errstate(over="ignore"):
        return array_bytes(np.full(shape, filled).astype(dtype))


def write_changed(seed: str, releases: Mapping[str, str | os.PathLike[str]], path: Path) -> str:
    """Write a damaged or hostile bundle.

    Args:
        seed: Which; the same gives the same.
        releases: Sound releases by what they are: ``"onnx"``, ``"ort"``, ``"static"``, and
            ``"old"``, which the device has.
        path: Where to write.

    Returns:
        What was changed, and how.
    """
    chance = random.Random(seed)
    if chance.random() < 0.05:
        kind = chance.choice(KINDS)
        write_hostile(kind, releases[ONNX], path, earlier=releases["old"])
        return kind
    base = chance.choice((ONNX, ONNX, ORT, "static"))
    bundle = Bundle.open(releases[base])
    names = sorted(bundle.manifest.files)
    name = chance.choice([*names, *[one for one in names if "backbone" in one] * 4, "manifest"])
    if name == "manifest":
        manifest = json.loads(bundle.manifest.to_json())
        fields = json.loads(_json(chance, json.dumps(manifest).encode()))
        repack(releases[base], path, Changes(manifest=fields if isinstance(fields, dict) else {}))
        return f"{base}: manifest"
    data = bundle.read(name)
    ways: list[Callable[[random.Random, bytes], bytes]] = [_bytes]
    if name == TOKENIZER:
        ways += [_json] * 3
    if name == ONNX_MODEL:
        ways += [_graph] * 3
    if name.endswith(".npy"):
        ways += [_array]
    way = chance.choice(ways)
    changed = None if chance.random() < 0.01 else way(chance, data)
    repack(releases[base], path, Changes({name: changed}))
    return f"{base}: {name.rpartition('/')[2]}: {way.__name__.strip('_')}"
