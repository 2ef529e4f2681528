"""Records: the results of jobs, appended once and never rewritten.

A run's folder has one SQLite file, ``records.sqlite``, in which the key of each job is unique.
``fala-sim pack`` writes the records as ``records.jsonl.gz``, one record per line, which is small
enough to be kept with the code. Readers treat both files alike.
"""

from __future__ import annotations

import gzip
import json
import sqlite3
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

from fala import DataError
from fala.base.errors import counted
from fala_sim.records.provenance import provenance

RecordContent: TypeAlias = "dict[str, Any]"
#: The kind of a record, as the family of experiments that makes the record names it.
RecordKind: TypeAlias = str

#: The file of a run's records, and the file that ``pack`` makes from them.
DATABASE, PACKED = "records.sqlite", "records.jsonl.gz"


@dataclass(frozen=True)
class RecordKey:
    """Identifies the job of a record.

    Attributes:
        kind: What was run.
        data: Name of the data set.
        method: Name of the method.
        user: Name of the user, or ``"all"``.
        seed: Seed of the division and of every random choice.
        variant: Distinguishes jobs of the same method; otherwise "".
    """

    kind: RecordKind
    data: str
    method: str
    user: str
    seed: int
    variant: str = ""

    def __str__(self) -> str:
        """Return the key as progress lines and errors show it."""
        names = (self.kind, self.data, self.method, self.variant, self.user, f"seed {self.seed}")
        return " ".join(filter(None, names))

    def of(self, variant: object) -> RecordKey:
        """Return the key of one of a job's several records."""
        return replace(self, variant=str(variant))

    @property
    def order(self) -> tuple[str, ...]:
        """The sort key of the order in which records are read."""
        method = f"{self.method}@{self.variant}" if self.variant else self.method
        return self.kind, self.data, method, f"{self.user}-{self.seed}"


def key_of(record: Mapping[str, Any]) -> RecordKey:
    """Return the key of a record.

    Raises:
        DataError: The content is not a record.
    """
    try:
        return RecordKey(**{name: record[name] for name in RecordKey.__dataclass_fields__})
    except (KeyError, TypeError) as error:
        raise DataError("not a record") from error


class RecordStore:
    """The records of a run's folder.

    Attributes:
        keys: Keys of all records, without the records that another process appends later.
    """

    def __init__(self, results: Path) -> None:
        """Create the store; no file is read or created yet.

        Args:
            results: Folder of the run.
        """
        self._results = results

    @cached_property
    def keys(self) -> set[RecordKey]:
        """The keys of all records; see the class."""
        return {key_of(record) for record in self.read()}

    def append(
        self, key: RecordKey, content: Mapping[str, Any], origin: Mapping[str, Any] | None = None
    ) -> None:
        """Append a record; if several processes append the same one, only one succeeds.

        Args:
            key: Key of the job.
            content: Result of the job, as plain values.
            origin: Provenance of the job, if it ran on another machine.

        Raises:
            DataError: The key is recorded already, or the record cannot be written.
        """
        record = {
            **asdict(key),
            **content,
            "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "provenance": provenance() if origin is None else origin,
        }
        try:
            text = json.dumps(record, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise DataError(f"{key}: not plain values: {error}") from error
        row = (_text_of(key), key.kind, text)
        try:
            if key in self.keys:
                raise sqlite3.IntegrityError
            self._results.mkdir(parents=True, exist_ok=True)
            with self._database() as database:
                database.execute(_TABLE)
                database.execute("INSERT INTO records VALUES (?, ?, ?)", row)
        except sqlite3.IntegrityError as error:
            raise DataError(f"{self._results}: {key} is recorded already") from error
        except (OSError, sqlite3.Error) as error:
            raise DataError(f"cannot write {str(self._results / DATABASE)!r}: {error}") from error
        self.keys.add(key)

    def read(self, *kinds: RecordKind) -> list[RecordContent]:
        """Return the records of some kinds, or of all, in the order of their keys.

        Raises:
            DataError: A record, which the error names, cannot be read.
        """
        appended = self._appended("kind", kinds) if kinds else self._appended()
        by_key = {key_of(record): record for record in (*self._packed(), *appended)}
        keys = [key for key in by_key if not kinds or key.kind in kinds]
        return [by_key[key] for key in sorted(keys, key=lambda key: key.order)]

    def get(self, key: RecordKey) -> RecordContent | None:
        """Return the record of one job, or None if the job was not run.

        Raises:
            DataError: The record cannot be read.
        """
        appended = self._appended("key", [_text_of(key)])
        user = f'"user":{json.dumps(key.user)}'  # a line without it belongs to another job
        records = (record for part in (appended, self._packed(user)) for record in part)
        return next((record for record in records if key_of(record) == key), None)

    def pack(self) -> Path:
        """Write all records as one small file, whose bytes are deterministic.

        Raises:
            DataError: There are no records, a record was made with uncommitted changes of the code
                or cannot be read, or the file cannot be written.
        """
        from fala.base.files import write_atomically

        records = self.read()
        if not records:
            raise DataError(f"{self._results}: no records to pack")
        changed = [record for record in records if record["provenance"].get("changed")]
        if changed:
            untracked = {name for record in changed
                         for name in record["provenance"].get("untracked", ())}  # fmt: skip
            files = f" (not in a commit: {', '.join(sorted(untracked))})" if untracked else ""
            raise DataError(
                f"{self._results}: uncommitted changes of the code made {len(changed)} of "
                f"{counted(len(records), 'record')}, the first: {key_of(changed[0])}{files}; "
                "commit the changes, and run again in another folder (--results)"
            )
        path = self._results / PACKED

        def write(part: Path) -> None:
            with part.open("wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
                for record in records:
                    line = json.dumps(record, separators=(",", ":"), allow_nan=False)
                    packed.write(f"{line}\n".encode())

        try:
            write_atomically(path, write)
        except OSError as error:
            raise DataError(f"cannot write {str(path)!r}: {error.strerror or error}") from error
        return path

    def _appended(self, column: str = "", values: Sequence[str] = ()) -> Iterator[RecordContent]:
        """Yield the records in the database: all, or those with some values of a column."""
        path = self._results / DATABASE
        # empty if the process was killed before the table was created
        if not path.is_file() or not path.stat().st_size:
            return
        try:
            with self._database() as database:
                where = f" WHERE {column} IN ({', '.join('?' * len(values))})" if column else ""
                rows = database.execute(f"SELECT key, record FROM records{where}", [*values])
                for key, text in rows:
                    yield _parsed(text, f"{path}, {key}")
        except sqlite3.Error as error:
            raise DataError(f"{path}: damaged: {error}; restore it from a copy") from error

    def _packed(self, part: str = "") -> Iterator[RecordContent]:
        """Yield the records in the packed file from the lines that contain a given part."""
        path, number = self._results / PACKED, 0
        if not path.is_file():
            return
        try:
            with gzip.open(path, "rt", encoding="utf-8") as lines:
                for number, line in enumerate(lines, 1):
                    if part in line:
                        yield _parsed(line, f"{path}, line {number}")
        except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
            raise DataError(
                f"{path}, line {number + 1}: damaged: {error}; restore the file from a copy"
            ) from error

    @contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        connection = sqlite3.connect(self._results / DATABASE, timeout=60)
        try:
            with connection:
                yield connection
        finally:
            connection.close()


def read_records(results: Path, *kinds: RecordKind) -> list[RecordContent]:
    """Return the records of a run's folder; see ``RecordStore.read``."""
    return RecordStore(results).read(*kinds)


_TABLE = "CREATE TABLE IF NOT EXISTS records (key TEXT PRIMARY KEY, kind TEXT, record TEXT)"


def _text_of(key: RecordKey) -> str:
    """Return the text of a key in the database."""
    return json.dumps(list(asdict(key).values()))


def _parsed(text: str, where: str) -> RecordContent:
    try:
        record: RecordContent = json.loads(text)
        key_of(record)
    except (ValueError, TypeError, DataError) as error:
        raise DataError(f"{where}: damaged: {error}; restore the file from a copy") from error
    return record
