"""Random damage to bytes, JSON, arrays, graphs, bundles and stores."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from bundles import repacked
from fala import Bundle
from fala.bundle.arrays import array_bytes
from fala.bundle.format import ONNX_MODEL, STATIC_SETTINGS, TOKENIZER
from hostile_graphs import GRAPHS, write_hostile_graph

_PAGE = 4096
_BYTES = (
    b"\0", b"\xff", b"\n", b'"', b"\\", b"{", b"}", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"1e999",
)  # fmt: skip
_NUMBERS = (
    -1, 0, 1, 2, 127, 255, 256, 65_535, 1 << 20, (1 << 31) - 1, 1 << 31, 1 << 40, (1 << 63) - 1,
    -(1 << 63),
)  # fmt: skip
#: Values to put in place of others.
_VALUES: tuple[Any, ...] = (
    *_NUMBERS, None, True, False, 1e30, -0.5, 1e308, float("nan"), float("inf"), "", "\0", "nan",
    10**400, "\ud800",
    "x" * 100_000, "é" * 5_001, "\u2581", "[UNK]", "Sequence", "\x1b[2J", "(a+)+", ".*", [], {},
    [[]], {"a": [1]}, [None] * 1_000,
)  # fmt: skip
_OPERATORS = (
    "Expand", "Tile", "Range", "ConstantOfShape", "Loop", "Reshape", "Concat", "MatMul", "NonZero",
    "Resize", "If", "Identity", "CumSum", "Pad", "Gather",
)  # fmt: skip


def damaged_bytes(whole: bytes, draw: random.Random) -> bytes:
    """Bytes with one change: flipped, replaced, deleted, inserted, doubled, or truncated."""
    if not whole:
        return draw.choice(_BYTES)
    # The header is damaged more often: it decides how the rest is read.
    at = draw.randrange(draw.choice((len(whole), min(len(whole), 400))))
    end = at + draw.choice((1, 1, 4, 64, _PAGE))
    ways: tuple[Callable[[], bytes], ...] = (
        lambda: whole[:at] + bytes([whole[at] ^ (1 << draw.randrange(8))]) + whole[at + 1 :],
        lambda: whole[:at] + draw.randbytes(len(whole[at:end])) + whole[end:],
        lambda: whole[:at] + draw.choice((1 << 31, 1 << 40, 0)).to_bytes(8, "little") + whole[end:],
        lambda: whole[:at] + whole[end:],
        lambda: whole[:at] + draw.choice(_BYTES) + whole[at:],
        lambda: whole[:end] + whole[at:],
        lambda: whole[:at],
    )
    return draw.choice(ways)()


def damaged_json(whole: bytes, draw: random.Random) -> bytes:
    """JSON with a value deleted, repeated, or replaced by another one or an unexpected one."""
    value = json.loads(whole)
    positions = _positions(value)
    # Most positions are words of the vocabulary: choose the earlier ones more often.
    few = positions if draw.random() < 0.3 else positions[: len(positions) // 3 + 1]
    container, key = draw.choice(few)
    source, source_key = draw.choice(positions)
    if isinstance(container, dict) and draw.random() < 0.15:
        del container[key]
    else:
        many = [container[key]] * (2 if isinstance(container[key], dict | list) else 1_000)
        changed = draw.choice([*draw.sample(_VALUES, 4), source[source_key], many])
        container[key] = json.loads(json.dumps(changed))
    return json.dumps(value).encode()


def _positions(value: Any) -> list[tuple[Any, Any]]:  # noqa: ANN401
    """All positions in a JSON value: a container, and a key or index in it."""
    positions = []
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        positions.append((value, key))
        if isinstance(value[key], dict | list):
            positions += _positions(value[key])
    return positions


def damaged_array(_: bytes, draw: random.Random) -> bytes:
    """An array of another shape, type or content."""
    width = draw.choice((1, 7, 8, 9, 50, 1_000))
    shape = draw.choice(((width,), (1, width), (width, width), (2, width), (0, width)))
    filled = draw.choice((np.nan, np.inf, 0.0, 1.0, -1.0, 3e38, 65_504.0))
    with np.errstate(over="ignore"):
        return array_bytes(
            np.full(shape, filled).astype(draw.choice((np.float16, np.float32, np.float64)))
        )


def damaged_graph(whole: bytes, draw: random.Random) -> bytes:
    """An ONNX model with a number, name or operator changed, added or removed."""
    import onnx

    model = onnx.load_from_string(whole)
    graph = model.graph
    node, tensor = draw.choice(graph.node), draw.choice(graph.initializer)
    names = [name for each in graph.node for name in (*each.input, *each.output)]
    names += [each.name for each in graph.initializer]
    number, operator = draw.choice(_NUMBERS), draw.choice((*_OPERATORS, node.op_type))
    change = draw.randrange(9)
    if change == 0:
        node.op_type = operator
    elif change == 1 and node.input:
        node.input[draw.randrange(len(node.input))] = draw.choice(names)
    elif change == 2 and tensor.dims:
        tensor.dims[draw.randrange(len(tensor.dims))] = number
    elif change == 3:
        tensor.data_type = draw.randrange(24)
    elif change == 4 and node.attribute:
        draw.choice(node.attribute).i = number
    elif change == 5:
        inputs = draw.choices(names, k=draw.randrange(1, 4))
        graph.node.append(onnx.helper.make_node(operator, inputs, [f"new{len(graph.node)}"]))
    elif change == 6:
        graph.node.remove(node)
    elif change == 7 and tensor.raw_data:
        tensor.raw_data = damaged_bytes(tensor.raw_data, draw)
    else:
        draw.choice(graph.output[0].type.tensor_type.shape.dim).dim_value = number
    return bytes(model.SerializeToString())


def write_damaged_bundle(
    path: Path,
    releases: Mapping[str, Path],
    draw: random.Random,
    *,
    alone: bool = False,
) -> str:
    """Write a damaged or hostile bundle, with right digests; returns a description.

    Args:
        path: The bundle's file.
        releases: Sound releases to change; ``"onnx"`` is one with an ONNX backbone.
        draw: The random generator.
        alone: Whether no process tries a bundle first, so that some kinds are not found.
    """
    if draw.random() < 0.05:
        kind = draw.choice(["silent on blanks"] if alone else [*GRAPHS])
        write_hostile_graph(kind, releases["onnx"], path)
        return kind
    base = draw.choice(sorted(releases))
    bundle = Bundle.open(releases[base])
    names = sorted(bundle.manifest.files)
    backbone = [name for name in names if "backbone" in name]
    name = draw.choice([*names, *backbone * 4, "manifest"])
    if name == "manifest":
        fields = json.loads(damaged_json(bundle.manifest.to_json(), draw))
        path.write_bytes(repacked(releases[base], **fields))
        return f"{base}: manifest"
    ways: list[Callable[[bytes, random.Random], bytes]] = [damaged_bytes]
    if name in (TOKENIZER, STATIC_SETTINGS):
        ways += [damaged_json] * 3
    if name == ONNX_MODEL:
        ways += [damaged_graph] * 3
    if name.endswith(".npy"):
        ways += [damaged_array]
    way = draw.choice(ways)
    data: bytes | None = None
    if draw.random() > 0.01:
        data = bundle.read(name)
        for _ in range(draw.choice((1, 1, 2, 4))):
            data = way(data, draw)
    path.write_bytes(repacked(releases[base], {name: data}))
    return f"{base}: {name}: {way.__name__}"


def damage_file(path: Path, draw: random.Random) -> str:
    """Damage a file in its bytes or pages; returns a description."""
    whole = path.read_bytes()
    pages = len(whole) // _PAGE
    if pages > 1 and draw.random() < 0.5:
        target, source = draw.randrange(pages), draw.randrange(pages)
        page = draw.choice((bytes(_PAGE), whole[source * _PAGE :][:_PAGE]))
        path.write_bytes(whole[: target * _PAGE] + page + whole[(target + 1) * _PAGE :])
        return f"{path.name}: page {target} {f'is page {source}' if any(page) else 'emptied'}"
    changes = draw.choice((1, 1, 3, 30))
    for _ in range(changes):
        whole = damaged_bytes(whole, draw)
    path.write_bytes(whole)
    return f"{path.name}: {changes} changes of bytes"


def damage_cells(path: Path, draw: random.Random) -> str:
    """Damage values of a store by unusual SQL; returns a description."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA ignore_check_constraints = ON")
        tables = db.execute("SELECT name FROM sqlite_master WHERE type='table'").fetchall()
        (table,) = draw.choice(tables)
        column = draw.choice([row[1] for row in db.execute(f"PRAGMA table_info({table})")])
        rows = db.execute(f"SELECT {column} FROM {table}").fetchall()
        where, old = "", None
        if rows and draw.random() < 0.7:
            (old,) = draw.choice(rows)
            where = f" WHERE {column} IS ?"
        values = [old] if where else []
        kind = draw.random()
        if kind < 0.1:
            statement = f"DELETE FROM {table}{where}"
        elif kind < 0.13:
            statement, values = f"DROP TABLE {table}", []
        elif kind < 0.16:
            version = draw.choice((0, 1, 2, 3, 5, 99, -1))
            statement, values = f"PRAGMA user_version = {version}", []
        else:
            value, cast = _cell(old, draw)
            statement = f"UPDATE OR IGNORE {table} SET {column} = {cast}{where}"
            values = [value, *values]
        try:
            db.execute(statement, values)
        except (sqlite3.Error, UnicodeError, OverflowError) as error:
            return f"{table}.{column}: not changed ({error})"
        return f"{statement} {values!r:.60}"


def _cell(old: Any, draw: random.Random) -> tuple[Any, str]:  # noqa: ANN401 - what SQLite holds
    """A value in place of another, and the SQL expression for it."""
    if isinstance(old, bytes) and old and draw.random() < 0.6:
        if draw.random() < 0.6:
            return damaged_bytes(old, draw), "?"
        numbers = np.array(draw.choice((np.nan, np.inf, 3e38, 1e-40)), draw.choice(("f4", "f2")))
        start = draw.randrange(max(1, len(old) // numbers.nbytes)) * numbers.nbytes
        return old[:start] + numbers.tobytes() + old[start + numbers.nbytes :], "?"
    if isinstance(old, str) and old and draw.random() < 0.5:
        return damaged_bytes(old.encode(), draw), "CAST(? AS TEXT)"
    if isinstance(old, int) and draw.random() < 0.5:
        return old + draw.choice((-1, 1, 1_000, 2**40)), "?"
    plain = [each for each in _VALUES if not isinstance(each, list | dict)]
    return draw.choice([*plain, "[]", "[[]]", "{}", "[1e999]", "[" * 5_000, b"", b"\0" * 7]), "?"
