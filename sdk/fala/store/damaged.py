"""Read what SQLite still can of a damaged store.

SQLite stops at the first damaged page of a table. So a table is read from its other end, too, and
row by row, by the ids in its indexes, which are on other pages.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from fala.store.access import integrity, is_access
from fala.store.schema import create_tables, is_current

#: Problems of one kind to list, at most.
_MOST = 3
#: The ids by which rows are read one by one: the column, and the table whose ids they are.
_IDS = {
    "texts": ("id", "texts"), "examples": ("id", "examples"), "embeddings": ("text", "texts"),
    "logits": ("example", "examples"),
}  # fmt: skip
#: The parts of a file's header that are the same in all stores, by position. See
#: https://www.sqlite.org/fileformat2.html, section 1.3.
_HEADER = {0: b"SQLite format 3\0\x10\0\2\2\0\x40\x20\x20", 44: b"\0\0\0\4", 56: b"\0\0\0\1"}
_PAGE = 4096


class Problems(list[str]):
    """The problems of a store, in words; each once."""

    def note(self, subject: str, reason: object = None) -> None:
        """Add a problem."""
        # After these words SQLite quotes the user's data.
        line = subject if reason is None else f"{subject}: {reason}".partition(" with text ")[0]
        if line not in self:
            self.append(line)

    @contextlib.contextmanager
    def noted(self, subject: str) -> Iterator[None]:
        """Note an error of reading as a problem; one of access is raised."""
        try:
            yield
        except (sqlite3.Error, ValueError, RecursionError) as error:
            if is_access(error):
                raise
            named = isinstance(error, sqlite3.Error) or type(error) is ValueError
            self.note(subject, error if named else type(error).__name__)


@contextlib.contextmanager
def readable(
    path: Path, source: sqlite3.Connection | None, problems: Problems
) -> Iterator[sqlite3.Connection]:
    """A connection to a store, or to a copy with a repaired header if SQLite cannot read it.

    Args:
        path: The store's file.
        source: A connection to it; None where there is no file.
        problems: Problems are added to it.
    """
    repaired = path.with_name(f"rebuilt-{path.name}.mended")
    try:
        if source is not None and _is_unreadable(source):
            problems.note("its header is damaged")
            _repair_header(path, repaired)
            source = None
        if source is not None:
            yield source
            return
        name = repaired if repaired.exists() else ":memory:"
        with contextlib.closing(sqlite3.connect(name, isolation_level=None)) as connection:
            yield connection
    finally:
        for file in path.parent.glob(f"{repaired.name}*"):
            file.unlink(missing_ok=True)


def _is_unreadable(source: sqlite3.Connection) -> bool:
    """Whether SQLite reads nothing of a file, as its header is damaged."""
    # Also reads a file that is shorter than its header says.
    source.execute("PRAGMA writable_schema = ON")
    try:
        source.execute("PRAGMA schema_version").fetchone()
    except sqlite3.DatabaseError as error:
        if is_access(error):
            raise
        return not isinstance(error, sqlite3.OperationalError)
    return False


def _repair_header(path: Path, repaired: Path) -> None:
    """Copy a store's file with a repaired header, and its log."""
    data = bytearray(path.read_bytes())
    data += bytes(-len(data) % _PAGE)
    header = {**_HEADER, 28: (len(data) // _PAGE).to_bytes(4, "big")}
    for position, value in header.items():
        data[position : position + len(value)] = value
    repaired.touch(mode=0o600)
    repaired.write_bytes(data)
    log = path.with_name(f"{path.name}-wal")
    if log.is_file():
        shutil.copy(log, repaired.with_name(f"{repaired.name}-wal"))


def copy_readable(
    path: Path, source: sqlite3.Connection, copy: sqlite3.Connection, problems: Problems
) -> None:
    """Copy the rows of all tables.

    Args:
        path: The store's file, for errors.
        source: A connection to it.
        copy: An empty database.
        problems: Problems are added to it.

    Raises:
        DeviceError: It has another version.
    """

    def decoded(data: bytes) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError:
            problems.note("a text", "not UTF-8")
            return data.decode(errors="replace")  # all but the damaged bytes are the user's

    source.text_factory = decoded
    columns: dict[str, list[str]] = {}
    with problems.noted("the file"):
        if not is_current(source, str(path)):
            problems.note("its schema is missing")
    with problems.noted("the file"):
        source.execute("PRAGMA cell_size_check = ON")
        columns = _columns(source)
        for line in integrity(source, _MOST):
            problems.note(line)
        for table, *_ in source.execute("PRAGMA foreign_key_check").fetchmany(_MOST):
            problems.note(table, "a row that belongs to none")
    create_tables(copy, str(path))
    copy.execute("BEGIN")
    for table, names in _columns(copy).items():
        copy.execute(f"DELETE FROM {table}")  # the device's row
        shared = [name for name in names if name in columns.get(table, ())]
        if shared:
            _copy_table(source, copy, table, shared, problems)
        if columns and len(shared) < len(names):
            problems.note(table, "the table is missing, or a column of it")
    copy.execute("COMMIT")


def _copy_table(
    source: sqlite3.Connection,
    copy: sqlite3.Connection,
    table: str,
    columns: list[str],
    problems: Problems,
) -> None:
    """Copy all rows of a table that can be read."""

    def rows(query: str, *values: object) -> Iterator[tuple[object, ...]]:
        with problems.noted(table):  # up to a damaged page
            yield from source.execute(query, values)

    def insert(names: list[str], chosen: Iterator[tuple[object, ...]]) -> None:
        marks = ", ".join("?" * len(names))
        query = f"INSERT OR IGNORE INTO {table} ({', '.join(names)}) VALUES ({marks})"
        copy.executemany(query, chosen)

    query = f"SELECT {', '.join(columns)} FROM {table}"
    insert(columns, rows(query))
    if not problems:
        return
    layout = copy.execute(f"PRAGMA table_info({table})").fetchall()
    backwards = ", ".join(f"{name} DESC" for _, name, *_, key in layout if key)
    insert(columns, rows(f"{query} ORDER BY {backwards}"))
    if table not in _IDS:
        return
    key, owner = _IDS[table]
    parts: list[tuple[list[str], list[tuple[object, ...]]]] = []
    for _, index, _, origin, _ in [*rows(f"PRAGMA index_list({table})")]:
        if origin == "u":
            names = [str(name) for _, _, name in rows(f"PRAGMA index_info({index})")]
            listing = f"SELECT {', '.join([key, *names])} FROM {table} INDEXED BY {index}"
            order = ", ".join(f"{name} DESC" for name in names)
            parts.append(([key, *names], [*rows(listing), *rows(f"{listing} ORDER BY {order}")]))
    ids = {row for (row,) in copy.execute(f"SELECT id FROM {owner}").fetchall()}
    for row in {row[0] for _, part in parts for row in part} - ids if owner == table else ids:
        insert(columns, rows(f"{query} WHERE {key} = ?", row))
    for names, part in parts:
        insert(names, iter(part))


def _columns(database: sqlite3.Connection) -> dict[str, list[str]]:
    """The columns of all tables, by name."""
    tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    return {
        table: [name for _, name, *_ in database.execute(f"PRAGMA table_info('{table}')")]
        for (table,) in database.execute(tables).fetchall()
    }
