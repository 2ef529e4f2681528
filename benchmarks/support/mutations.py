"""Ways in which a file of rows or a store is damaged."""

from __future__ import annotations

import json
import random
import sqlite3
import struct
from contextlib import closing
from pathlib import Path
from typing import Any

_PAGE = 4096
_SPECIAL = (
    b"\0",
    b"\xff",
    b"\n",
    b'"',
    b"\\",
    b"{",
    b"}",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
    b"1e999",
)

#: Values that a row of JSON should not have where another is expected.
_JSON: tuple[Any, ...] = (
    None, True, -1, 0, 1e308, 10**400, float("nan"), "", "\0", "\ud800", "x" * 100_000, [], {},
    [[]], ["\ud800"], {"a": [1]}, "public", "train", "test", 2**63, "é" * 5_001, [None] * 1_000,
)  # fmt: skip


def rows(count: int, draw: random.Random, texts: list[str]) -> list[dict[str, Any]]:
    """Rows of one small file, of one task."""
    matching = draw.random() < 0.4
    made = []
    for number in range(count):
        row: dict[str, Any] = {
            "user": f"u{number // 6}",
            "split": ("public", "train", "test")[number % 3],
            "label": number // 3 % 2,
        }
        if matching:
            row |= {"history": draw.sample(texts, number % 4), "candidate": draw.choice(texts)}
        else:
            row["text"] = draw.choice(texts)
        made.append(row)
    return made


def damaged_rows(draw: random.Random, texts: list[str]) -> bytes:
    """A file of rows with some damage: in its values, or in its bytes."""
    made = rows(6 * draw.randrange(1, 6), draw, texts)
    lines: list[Any] = list(made)
    for _ in range(draw.randrange(0, 3)):
        row = draw.choice(made)
        name = draw.choice([*row, "history", "text", "candidate", "other"])
        kind = draw.random()
        if kind < 0.2:
            row.pop(name, None)
        elif kind < 0.9:
            row[name] = draw.choice(_JSON)
        else:
            lines[draw.randrange(len(lines))] = draw.choice(_JSON)
    text = b"\n".join(json.dumps(line).encode() for line in lines)
    if draw.random() < 0.1:
        deep = draw.choice((10, 1_000, 100_000))
        text += b"\n" + b"[" * deep + b"]" * draw.choice((0, deep))
    for _ in range(draw.choice((0, 0, 1, 1, 2, 10))):
        text = damaged_bytes(text, draw)
    return text


def damaged_bytes(whole: bytes, draw: random.Random) -> bytes:
    """Bytes with one change: flipped, cut out, put in, doubled, or an end that is missing."""
    if not whole:
        return draw.choice(_SPECIAL)
    here = draw.randrange(len(whole))
    length = min(len(whole) - here, draw.choice((1, 1, 4, 64, _PAGE)))
    kind = draw.randrange(6)
    if kind == 0:
        return whole[:here] + bytes([whole[here] ^ (1 << draw.randrange(8))]) + whole[here + 1 :]
    if kind == 1:
        return whole[:here] + draw.randbytes(length) + whole[here + length :]
    if kind == 2:
        return whole[:here] + whole[here + length :]
    if kind == 3:
        return whole[:here] + draw.choice(_SPECIAL) + whole[here:]
    if kind == 4:
        return whole[: here + length] + whole[here:]
    return whole[:here]


def damage_file(path: Path, draw: random.Random) -> str:
    """Damage a file in its bytes or pages; says how."""
    whole = path.read_bytes()
    pages = len(whole) // _PAGE
    if pages > 1 and draw.random() < 0.5:
        one, other = draw.randrange(pages), draw.randrange(pages)
        page = draw.choice((bytes(_PAGE), whole[other * _PAGE :][:_PAGE]))
        path.write_bytes(whole[: one * _PAGE] + page + whole[(one + 1) * _PAGE :])
        return f"{path.name}: page {one} {'emptied' if not any(page) else f'is page {other}'}"
    changes = draw.choice((1, 1, 3, 30))
    for _ in range(changes):
        whole = damaged_bytes(whole, draw)
    path.write_bytes(whole)
    return f"{path.name}: {changes} changes of bytes"


def damage_cells(path: Path, draw: random.Random) -> str:
    """Damage values of a store, as SQL that no program of ours would write; says how."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA ignore_check_constraints = ON")
        tables = [
            name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type='table'")
        ]
        table = draw.choice(tables)
        columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
        column = draw.choice(columns)
        count = db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        where = ""
        if count and draw.random() < 0.7:
            first = ", ".join(columns)
            row = db.execute(
                f"SELECT {first} FROM {table} LIMIT 1 OFFSET {draw.randrange(count)}"
            ).fetchone()
            key = columns[0]
            where = f" WHERE {key} IS ?"
            values: tuple[Any, ...] = (row[0],)
        else:
            values = ()
        kind = draw.random()
        try:
            if kind < 0.1:
                db.execute(f"DELETE FROM {table}{where}", values)
                return f"rows of {table} deleted"
            if kind < 0.13:
                db.execute(f"DROP TABLE {table}")
                return f"{table} dropped"
            if kind < 0.16:
                version = draw.choice((0, 1, 2, 3, 5, 99, -1))
                db.execute(f"PRAGMA user_version = {version}")
                return f"user_version {version}"
            old = db.execute(f"SELECT {column} FROM {table}{where} LIMIT 1", values).fetchone()
            value, cast = _value(draw, None if old is None else old[0])
            db.execute(f"UPDATE OR IGNORE {table} SET {column} = {cast}{where}", (value, *values))
        except (sqlite3.Error, UnicodeError, OverflowError) as error:
            return f"{table}.{column}: not changed ({error})"
        return f"{table}.{column} = {value!r:.60} ({cast})"


def _value(draw: random.Random, old: Any) -> tuple[Any, str]:  # noqa: ANN401 - what SQLite holds
    """A value in place of another, and the SQL that gives it its type."""
    plain: list[Any] = [
        None, 0, 1, -1, 2**63 - 1, -(2**63), 1e308, float("inf"), float("nan"), "", "nan", "[]",
        "[[]]", "{}", '["a"]', "[1e999]", "[" * 5_000, "\0", "x" * 100_000, b"", b"\0" * 7,
        struct.pack("<4f", float("nan"), float("inf"), -1.0, 3e38),
    ]  # fmt: skip
    if isinstance(old, bytes) and old and draw.random() < 0.6:
        changed = damaged_bytes(old, draw)
        if draw.random() < 0.4:
            number = draw.choice((float("nan"), float("inf"), 3e38, 1e-40))
            size = draw.choice((2, 4))
            here = draw.randrange(max(1, len(old) // size)) * size
            packed = struct.pack("<f", number) if size == 4 else b"\x00\x7e"
            changed = old[:here] + packed + old[here + size :]
        return changed, "?"
    if isinstance(old, str) and old and draw.random() < 0.5:
        return damaged_bytes(old.encode(), draw), "CAST(? AS TEXT)"
    if isinstance(old, int) and draw.random() < 0.5:
        return old + draw.choice((-1, 1, 1_000, 2**40)), "?"
    return draw.choice(plain), "?"
