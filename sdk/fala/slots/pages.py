"""Rows out of the pages of an SQLite file that SQLite itself cannot read any more.

Every table's rows lie in leaf pages, which say themselves where their rows begin. So a row can be
read though the header, the schema, or the pages above it are damaged. By the description of the
file format, https://www.sqlite.org/fileformat2.html: sections 1.6 (b-tree pages), 2.1 (records) and
4.1 (the write-ahead log).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

Value = int | float | str | bytes | None

_LEAF = 0x0D
_INDEX_LEAF, _INDEX_INNER = 0x0A, 0x02
_HEADER = 100  # bytes before the b-tree of the first page
_PAGE = 4096  # bytes, where the header does not tell
_WAL_HEADER, _FRAME_HEADER = 32, 24
_INTEGERS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}
_MOST_COLUMNS = 64


def rows_of(data: bytes, log: bytes = b"") -> Iterator[tuple[int | None, tuple[Value, ...]]]:
    """The rows of all tables; a row id's own column is None.

    Args:
        data: The file.
        log: The write-ahead log beside it.

    Yields:
        Row id and columns; for a table without row ids None and columns, its key's first. What
        cannot be read is passed over, and an index's entries come with the rest.
    """
    size = _page_size(data, log)
    pages = {at // size + 1: data[at : at + size] for at in range(0, len(data), size)}
    pages.update(_committed(log, size))
    reserved = data[20] if data[:16] == b"SQLite format 3\0" else 0
    free = _free(pages)
    for number in sorted(pages.keys() - free):
        yield from _leaf(pages, number, size - reserved)


def _page_size(data: bytes, log: bytes) -> int:
    told = int.from_bytes(data[16:18], "big") if len(data) > 18 else 0
    told = 65536 if told == 1 else told
    if len(log) >= _WAL_HEADER and told not in _sizes():
        told = int.from_bytes(log[8:12], "big")
    return told if told in _sizes() else _PAGE


def _sizes() -> set[int]:
    return {2**power for power in range(9, 17)}


def _committed(log: bytes, size: int) -> dict[int, bytes]:
    """The pages of the log's transactions that were committed, the last of each."""
    pages: dict[int, bytes] = {}
    waiting: dict[int, bytes] = {}
    salts = log[16:24]
    for at in range(_WAL_HEADER, len(log) - size - _FRAME_HEADER + 1, size + _FRAME_HEADER):
        number, after = struct.unpack(">2I", log[at : at + 8])
        if log[at + 8 : at + 16] != salts:  # of an earlier round through the log
            break
        waiting[number] = log[at + _FRAME_HEADER : at + _FRAME_HEADER + size]
        if after:  # the last of a transaction
            pages.update(waiting)
            waiting = {}
    return pages


def _free(pages: dict[int, bytes]) -> set[int]:
    """Pages that belong to nothing: what may lie in them was deleted."""
    free: set[int] = set()
    trunk = int.from_bytes(pages.get(1, b"")[32:36], "big")
    while trunk in pages and trunk not in free:
        free.add(trunk)
        page = pages[trunk]
        count = min(int.from_bytes(page[4:8], "big"), len(page) // 4 - 2)
        free.update(struct.unpack(f">{count}I", page[8 : 8 + 4 * count]))
        trunk = int.from_bytes(page[:4], "big")
    return free


def _leaf(
    pages: dict[int, bytes], number: int, usable: int
) -> Iterator[tuple[int | None, tuple[Value, ...]]]:
    page = pages[number]
    start = _HEADER if number == 1 else 0
    if len(page) < start + 12 or page[start] not in (_LEAF, _INDEX_LEAF, _INDEX_INNER):
        return
    kind = page[start]
    # Of a longer row so much lies in the page itself, and the rest in pages of its own.
    most = usable - 35 if kind == _LEAF else (usable - 12) * 64 // 255 - 23
    first, skipped = (start + 12, 4) if kind == _INDEX_INNER else (start + 8, 0)
    count = int.from_bytes(page[start + 3 : start + 5], "big")
    for cell in range(min(count, usable // 4)):
        pointer = first + 2 * cell
        at = int.from_bytes(page[pointer : pointer + 2], "big") + skipped
        try:
            identity: int | None = None
            length, at = _varint(page, at)
            if kind == _LEAF:
                identity, at = _varint(page, at)
            yield identity, _record(_payload(pages, page, at, length, usable, most))
        except (IndexError, ValueError):  # damaged: the next one may be whole
            continue


def _payload(
    pages: dict[int, bytes], page: bytes, at: int, length: int, usable: int, most: int
) -> bytes:
    """A row's bytes, with what of them lies in pages of their own."""
    least = (usable - 12) * 32 // 255 - 23
    local = length
    if length > most:
        local = least + (length - least) % (usable - 4)
        local = least if local > most else local
    parts, have = [page[at : at + local]], local
    following = int.from_bytes(page[at + local : at + local + 4], "big") if length > local else 0
    seen: set[int] = set()
    while have < length:
        if following not in pages or following in seen:
            raise ValueError("a row without its end")
        seen.add(following)
        further = pages[following]
        parts.append(further[4 : 4 + min(usable - 4, length - have)])
        have += len(parts[-1])
        following = int.from_bytes(further[:4], "big")
    payload = b"".join(parts)
    if len(payload) != length:
        raise ValueError("a row without its end")
    return payload


def _record(payload: bytes) -> tuple[Value, ...]:
    length, at = _varint(payload, 0)
    kinds: list[int] = []
    while at < length:
        kind, at = _varint(payload, at)
        kinds.append(kind)
    if at != length or len(kinds) > _MOST_COLUMNS:
        raise ValueError("a row's header is damaged")
    values: list[Value] = []
    for kind in kinds:
        value, at = _value(payload, at, kind)
        values.append(value)
    if at != len(payload):
        raise ValueError("a row of another length")
    return tuple(values)


def _value(payload: bytes, at: int, kind: int) -> tuple[Value, int]:
    if kind == 0:
        return None, at
    if kind in (8, 9):
        return kind - 8, at
    if kind in (10, 11):
        raise ValueError("a kind that SQLite keeps for itself")
    size = _INTEGERS.get(kind, 8 if kind == 7 else (kind - 12) // 2)
    part = payload[at : at + size]
    if len(part) != size:
        raise ValueError("a row without its end")
    if kind in _INTEGERS:
        return int.from_bytes(part, "big", signed=True), at + size
    if kind == 7:
        return float(struct.unpack(">d", part)[0]), at + size
    return part if kind % 2 == 0 else part.decode(errors="replace"), at + size


def _varint(data: Sequence[int], at: int) -> tuple[int, int]:
    value = 0
    for place in range(9):
        byte = data[at + place]
        value = value << 8 | byte if place == 8 else value << 7 | byte & 0x7F
        if byte < 0x80 or place == 8:
            at += place + 1
            break
    return (value - 2**64 if value >= 2**63 else value), at
