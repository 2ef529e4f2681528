"""What SQLite can still read of a damaged store.

SQLite stops at the first damaged page of a table. So a table is read on behind it, by its key, and
from its other end; texts and examples are read from their indexes, too, which lie in other pages.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from fala.errors import DeviceError
from fala.store.schema import MIGRATIONS, apply

#: Problems of one kind that are listed.
_MOST = 3
#: The whole numbers by which a table is read on behind a damaged page.
_KEYS = {"texts": "id", "examples": "id", "embeddings": "text", "logits": "example"}
_LARGEST = 2**63 - 1
#: The header of a store's file: what of it is the same in all of them, by position. See
#: https://www.sqlite.org/fileformat2.html, section 1.3.
_HEADER = {0: b"SQLite format 3\0\x10\0\2\2\0\x40\x20\x20", 44: b"\0\0\0\4", 56: b"\0\0\0\1"}
_PAGE = 4096
#: Pages that a short file may lack in any case; many more are a damaged count.
_SHORT = 1000

Row = tuple[object, ...]


@contextlib.contextmanager
def readable_copy(path: Path, source: sqlite3.Connection | None) -> Iterator[sqlite3.Connection]:
    """A connection to a store; to a copy of the file with its header mended, where that is damaged.

    SQLite reads nothing of a file whose header is damaged, or that is shorter than its header says.
    """
    if source is None:
        with contextlib.closing(sqlite3.connect(":memory:")) as empty:
            yield empty
        return
    mended = path.with_name(f"rebuilt-{path.name}.mended")
    try:
        if not _unreadable(source) or not _mend(path, mended):
            yield source
            return
        with contextlib.closing(sqlite3.connect(mended, isolation_level=None)) as copy:
            yield source if _unreadable(copy) else copy
    finally:
        for file in path.parent.glob(f"{mended.name}*"):
            file.unlink(missing_ok=True)


def _unreadable(source: sqlite3.Connection) -> bool:
    """Whether SQLite reads nothing of a file, not even its schema."""
    try:
        source.execute("SELECT name FROM sqlite_master").fetchall()
    except sqlite3.OperationalError:  # in use
        return False
    except (sqlite3.DatabaseError, UnicodeDecodeError):
        return True
    return False


def _mend(path: Path, mended: Path) -> bool:
    """Copy a store's file with a header that fits, and its log; False where that fails."""
    try:
        data = bytearray(path.read_bytes())
        here = -(-len(data) // _PAGE)
        stated = int.from_bytes(data[28:32], "big")
        pages = stated if here <= stated <= 2 * here + _SHORT else here
        data += bytes(pages * _PAGE - len(data))
        for position, value in _HEADER.items():
            data[position : position + len(value)] = value
        data[28:32] = pages.to_bytes(4, "big")
        mended.touch(mode=0o600)
        mended.write_bytes(data)
        log = path.with_name(f"{path.name}-wal")
        if log.is_file():
            shutil.copy(log, mended.with_name(f"{mended.name}-wal"))
    except OSError:
        return False
    return True


class Copying:
    """Copies the rows of all tables, and brings the copy to this version of the schema."""

    def __init__(
        self, path: Path, source: sqlite3.Connection, copy: sqlite3.Connection, problems: list[str]
    ) -> None:
        self._path, self._source, self._copy, self._problems = path, source, copy, problems
        source.text_factory = self._decoded

    def run(self) -> None:
        """Copy them."""
        columns: dict[str, list[str]] = {}
        version = -1
        with self._noted("the file"):
            version = int(self._source.execute("PRAGMA user_version").fetchone()[0])
            if version > len(MIGRATIONS):
                raise DeviceError(
                    f"{self._path}: written by a newer fala (schema {version}, this one knows "
                    f"{len(MIGRATIONS)}); update fala"
                )
            self._source.execute("PRAGMA cell_size_check = ON")
            columns = _columns(self._source)
            checked = self._source.execute(f"PRAGMA integrity_check({_MOST})").fetchall()
            self._problems += [line for (line,) in checked if line != "ok"]
            torn = self._source.execute("PRAGMA foreign_key_check").fetchmany(_MOST)
            self._problems += [f"{row[0]}: a row that belongs to none" for row in torn]
        likely = _likely_version(columns, version)
        if likely != version and version >= 0:
            self._problems.append(f"a schema of version {version}, not complete")
        self._copy.execute("BEGIN")
        for step in MIGRATIONS[:likely]:
            apply(step, self._copy)
        for table, names in _columns(self._copy).items():
            self._copy.execute(f"DELETE FROM {table}")  # a migration writes the device's row
            shared = [name for name in names if name in columns.get(table, ())]
            if shared:
                self._copy_table(table, shared)
            elif columns:
                self._problem(f"{table}: the table is missing")
        for step in MIGRATIONS[likely:]:
            apply(step, self._copy)
        self._copy.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
        self._copy.execute("COMMIT")

    def _copy_table(self, table: str, columns: list[str]) -> None:
        key = _KEYS.get(table)
        if key is None:
            self._insert(table, columns, self._read(f"SELECT {', '.join(columns)} FROM {table}"))
        else:
            columns = [key, *(name for name in columns if name != key)]
            self._insert(table, columns, self._read_on(table, columns))
        if not self._problems:
            return
        order = ", ".join(f"{name} DESC" for name in self._primary(table))
        query = f"SELECT {', '.join(columns)} FROM {table} ORDER BY {order}"
        self._insert(table, columns, self._read(query))
        with self._noted(table):
            for _, index, _, origin, _ in self._source.execute(f"PRAGMA index_list({table})"):
                if origin == "u" and key is not None:
                    listed = self._source.execute(f"PRAGMA index_info({index})").fetchall()
                    names = [key, *(name for _, _, name in listed)]
                    query = f"SELECT {', '.join(names)} FROM {table} INDEXED BY {index}"
                    self._insert(table, names, self._read(query))
                    order = ", ".join(f"{name} DESC" for name in names[1:])
                    self._insert(table, names, self._read(f"{query} ORDER BY {order}"))

    def _insert(self, table: str, columns: list[str], rows: Iterator[Row]) -> None:
        marks = ", ".join("?" * len(columns))
        query = f"INSERT OR IGNORE INTO {table} ({', '.join(columns)}) VALUES ({marks})"
        self._copy.executemany(query, rows)

    def _read(self, query: str) -> Iterator[Row]:
        """The rows of a query, up to a damaged page."""
        with self._noted(query.partition(" FROM ")[2].partition(" ")[0]):
            yield from self._source.execute(query)

    def _read_on(self, table: str, columns: list[str]) -> Iterator[Row]:
        """The rows of a table by its key, also those behind damaged pages."""
        key = columns[0]
        query = f"SELECT {', '.join(columns)} FROM {table} WHERE {key} >= ? ORDER BY {key}"
        start = -_LARGEST - 1
        while True:
            last = max(start - 1, 0)
            with self._noted(table):
                for row in self._source.execute(query, (start,)):
                    # Keys of a damaged page may lie in any order.
                    last = max(last, row[0]) if isinstance(row[0], int) else last
                    yield row
                return
            following = self._next_row(f"{query} LIMIT 1", last)
            if following is None or not isinstance(following[0], int):
                return
            yield following
            start = max(following[0], last) + 1

    def _next_row(self, query: str, last: int) -> Row | None:
        """The first row behind a key that can be read, past damaged pages; None without one.

        Args:
            query: Reads one row, from a key on.
            last: The last key that was read.
        """
        rows: dict[int, Row | None] = {}

        def readable(start: int) -> bool:
            with contextlib.suppress(sqlite3.Error, UnicodeDecodeError):
                rows[start] = self._source.execute(query, (start,)).fetchone()
            return start in rows

        damaged, step = last, 1
        while damaged + step <= _LARGEST and not readable(damaged + step):
            damaged, step = damaged + step, 2 * step
        start = damaged + step
        while start - damaged > 1 and start <= _LARGEST:
            middle = (start + damaged) // 2
            if readable(middle):
                start = middle
            else:
                damaged = middle
        return rows.get(start)

    def _primary(self, table: str) -> list[str]:
        rows = self._copy.execute(f"PRAGMA table_info({table})").fetchall()
        return [name for _, name, *_, key in sorted(rows, key=lambda row: row[5]) if key]

    def _decoded(self, data: bytes) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError:
            self._problem("a text: not UTF-8")
            return data.decode(errors="replace")  # with a damaged byte it is nearly the user's

    @contextlib.contextmanager
    def _noted(self, what: str) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:
            self._problem(f"{what}: {reason_of(error)}")

    def _problem(self, what: str) -> None:
        if what not in self._problems:
            self._problems.append(what)


def _columns(database: sqlite3.Connection) -> dict[str, list[str]]:
    """The columns of all tables, by name."""
    tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    return {
        table: [name for _, name, *_ in database.execute(f"PRAGMA table_info('{table}')")]
        for (table,) in database.execute(tables).fetchall()
    }


def _likely_version(columns: dict[str, list[str]], stated: int) -> int:
    """The version of the schema whose columns are most like those of a file."""
    if not columns:
        return len(MIGRATIONS)
    present = {(table, name) for table, names in columns.items() for name in names}
    different: dict[int, int] = {}
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
        for version, step in enumerate(MIGRATIONS, start=1):
            apply(step, database)
            listed = {
                (table, name) for table, names in _columns(database).items() for name in names
            }
            different[version] = len(present ^ listed)
    return min(different, key=lambda version: (different[version], version != stated, -version))


def reason_of(error: Exception) -> str:
    """An error's words without the user's."""
    return str(error).partition(" with text ")[0]  # what follows is the user's
