"""Records: what one run of one job gave, written once and never rewritten.

While a run goes on, each record is a file of its own under ``records/``; ``fala-sim pack`` turns
them into the one file ``records.jsonl.gz`` (see ``fala_sim.packing``). Readers see both alike.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from fala import DataError
from fala_sim.origin import provenance

Record: TypeAlias = "dict[str, Any]"
Kind: TypeAlias = Literal[
    "division",
    "search",
    "replacement",
    "frontier",
    "curve",
    "ablation",
    "chain",
    "profile",
    "flops",
    "adapter-search",
    "adapter",
    "adapter-size",
    "adapter-init",
    "adapter-span",
    "prompt",
    "prompt-length",
    "prompt-training",
]
KINDS: tuple[Kind, ...] = get_args(Kind)

#: The file of a run's packed records, one JSON object a line.
PACKED = "records.jsonl.gz"

_Stamp: TypeAlias = "tuple[int, int, int]"


@dataclass(frozen=True)
class Key:
    """Which job a record is of; it gives the file's place.

    Attributes:
        kind: What was run.
        data: The data set.
        method: The method's name.
        user: The user, or ``"all"``.
        seed: Of the division and of every random choice.
        variant: What sets the job apart from others of this method, or "".
    """

    kind: Kind
    data: str
    method: str
    user: str
    seed: int
    variant: str = ""

    @property
    def place(self) -> tuple[str, ...]:
        """The record's place among all, and in what order they are read."""
        method = f"{self.method}@{self.variant}" if self.variant else self.method
        user = f"{_file_name(self.user)}-{self.seed}.json"
        return (*map(_file_name, (self.kind, self.data, method)), user)

    def path(self, results: Path) -> Path:
        """The record's own file, as long as it is not packed."""
        return results.joinpath("records", *self.place)

    def fields(self) -> Record:
        """The key as a record has it."""
        return {
            "kind": self.kind,
            "data": self.data,
            "method": self.method,
            "variant": self.variant,
            "user": self.user,
            "seed": self.seed,
        }


def key_of(record: Mapping[str, Any]) -> Key:
    """The key that a record has.

    Raises:
        DataError: If it is no record.
    """
    try:
        key = Key(**{name: record[name] for name in Key.__dataclass_fields__})
    except (KeyError, TypeError) as error:
        raise DataError("not a record") from error
    if key.kind not in KINDS:
        raise DataError(f"not a record: kind {key.kind!r}")
    return key


def write_record(
    results: Path,
    key: Key,
    content: Mapping[str, Any],
    origin: Mapping[str, Any] | None = None,
) -> None:
    """Write a record, whole or not at all; of several who write the same one, one does.

    Args:
        results: The run's folder.
        key: The job.
        content: What it gave, plain values.
        origin: With what it was made, where that was not on this machine.

    Raises:
        DataError: If there is one already: records are not rewritten.
    """
    path = key.path(results)
    refusal = DataError(f"{path}: recorded already; a record is never rewritten")
    if recorded(results, key):
        raise refusal
    path.parent.mkdir(parents=True, exist_ok=True)
    record = {
        **key.fields(),
        **content,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "provenance": provenance() if origin is None else origin,
    }
    text = json.dumps(record, indent=1, allow_nan=False) + "\n"
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}.part")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        # Renaming would replace what another process has just written; a link cannot.
        os.link(temporary, path)
    except FileExistsError:
        raise refusal from None
    except OSError as error:
        raise DataError(f"cannot write {str(path)!r}: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)
    # Another one's may have been packed in the meantime, and its file made room for this one.
    packed = _packed_record(results, key)
    if packed is not None and packed != json.loads(text):
        path.unlink(missing_ok=True)
        raise refusal


def recorded(results: Path, key: Key) -> bool:
    """Whether a job has its record, packed or not."""
    return key.path(results).is_file() or key in _packed_keys(*_stamped(results))


def read_records(results: Path, kind: Kind) -> list[Record]:
    """All records of a kind, packed or not, by place.

    Raises:
        DataError: If one cannot be read; names it.
    """
    found: dict[tuple[str, ...], Record] = {}
    for path in (results / "records" / kind).glob("*/*/*.json"):
        found[path.relative_to(results / "records").parts] = _read(path)
    # What is in both was packed a moment ago, and is the same.
    found |= {key.place: {**record} for key, record in _packed(*_stamped(results)).items()
              if key.kind == kind}  # fmt: skip
    return [record for _, record in sorted(found.items(), key=lambda item: item[0])]


def read_record(results: Path, key: Key) -> Record | None:
    """One job's record, or None where it was not run.

    Raises:
        DataError: If it cannot be read.
    """
    path = key.path(results)
    return _read(path) if path.is_file() else _packed_record(results, key)


def loose_records(results: Path) -> Iterator[tuple[Path, Record]]:
    """The records that have files of their own, in order of place.

    Raises:
        DataError: If one cannot be read; names it.
    """
    for path in sorted((results / "records").glob("*/*/*/*.json")):
        yield path, _read(path)


def read_packed(path: Path) -> Iterator[Record]:
    """Read a packed file line by line.

    Raises:
        DataError: If it cannot be read; names the line.
    """
    number = 1
    try:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                record = json.loads(line)
                key_of(record)
                yield record
                number += 1
    except (OSError, EOFError, zlib.error, ValueError, TypeError, DataError) as error:
        raise DataError(
            f"{path}, line {number}: damaged: {error}; bring the file back from a copy"
        ) from error


def _read(path: Path) -> Record:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: not a record: {error}; delete it to run its job again") from error
    if not isinstance(record, dict) or record.get("kind") not in KINDS:
        raise DataError(f"{path}: not a record; delete it to run its job again")
    return record


def _stamped(results: Path) -> tuple[Path, _Stamp | None]:
    """The packed file, and what changes with its content; None where there is none."""
    path = results / PACKED
    try:
        found = path.stat()
    except FileNotFoundError:
        return path, None
    except OSError as error:
        raise DataError(f"cannot read {str(path)!r}: {error.strerror}") from error
    return path, (found.st_ino, found.st_size, found.st_mtime_ns)


@lru_cache(maxsize=4)
def _packed(path: Path, stamp: _Stamp | None) -> Mapping[Key, Record]:
    return {key_of(record): record for record in read_packed(path)} if stamp else {}


@lru_cache(maxsize=4)
def _packed_keys(path: Path, stamp: _Stamp | None) -> frozenset[Key]:
    """The keys alone: a job that asks must not find all records in its measured memory."""
    return frozenset(map(key_of, read_packed(path))) if stamp else frozenset()


def _packed_record(results: Path, key: Key) -> Record | None:
    path, stamp = _stamped(results)
    if key not in _packed_keys(path, stamp):
        return None
    return next(record for record in read_packed(path) if key_of(record) == key)


def _file_name(text: str) -> str:
    """A name that every file system takes, and no other text has.

    `lewidi:/some/folder` becomes its last part and a digest of all of it.
    """
    plain = re.sub(r"[^\w.@+-]+", "_", text.rpartition("/")[2])
    if plain == text and text:
        return text
    return f"{plain}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
