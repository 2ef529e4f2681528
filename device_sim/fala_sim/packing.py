"""Packs a run's records: many small files become one, a twelfth of their size.

The new file is written beside the old one, read back and compared, and then takes its place; the
small files are removed after that. Killed at any instant, the same command goes on: what is in
both is the same record.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from fala import DataError
from fala.cli.commands import Command
from fala_sim.records import PACKED, Key, Record, key_of, loose_records, read_packed


@dataclass(frozen=True)
class Packed:
    """What was packed.

    Attributes:
        records: How many are in the file now.
        added: How many of them came from files of their own.
        bytes: The file's size.
    """

    records: int
    added: int
    bytes: int


def pack(results: Path) -> Packed:
    """Add the records that have files of their own to the packed ones, and remove those files.

    Args:
        results: The run's folder.

    Raises:
        DataError: If there are no records, one cannot be read, a file cannot be written, or
            another process packs here.
    """
    from filelock import FileLock, Timeout

    if not results.is_dir():
        raise DataError(f"{results}: no such folder")
    work = results / "work"
    try:
        work.mkdir(exist_ok=True)
        (work / ".gitignore").write_text("*\n", encoding="utf-8")
        with FileLock(work / "pack.lock", timeout=0):
            return _pack(results)
    except Timeout as error:
        raise DataError(f"{results}: is being packed by another process") from error
    except OSError as error:
        raise DataError(f"{results}: cannot pack: {error.strerror or error}") from error


def _pack(results: Path) -> Packed:
    path = results / PACKED
    for left in results.glob(f"{PACKED}.*.part"):  # of one that was killed: it has no lock
        left.unlink()
    records = {key_of(record): record for record in read_packed(path)} if path.exists() else {}
    loose = list(loose_records(results))
    before = len(records)
    for place, record in loose:
        key = _checked(results, place, record)
        if records.setdefault(key, record) != record:
            raise DataError(f"{place}: {path} has another record of this job; delete one of them")
    if not records:
        raise DataError(f"{results}: no records to pack")
    if len(records) > before:
        _write(path, records)
    for place, _ in loose:
        place.unlink()
    _remove_empty(results / "records")
    return Packed(len(records), len(records) - before, path.stat().st_size)


def _checked(results: Path, place: Path, record: Record) -> Key:
    """A record's key, which must be that of its place: it is found by no other."""
    try:
        key = key_of(record)
    except DataError as error:
        raise DataError(f"{place}: {error}; delete it to run its job again") from error
    if key.path(results) != place:
        raise DataError(f"{place}: a record of another place: {key.path(results)}")
    return key


def _write(path: Path, records: Mapping[Key, Record]) -> None:
    """Write all records, whole or not at all; the same records give the same bytes."""
    ordered = [records[key] for key in sorted(records, key=lambda key: key.place)]
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            with gzip.GzipFile("", "wb", compresslevel=9, fileobj=file, mtime=0) as packed:
                for record in ordered:
                    line = json.dumps(record, separators=(",", ":"), allow_nan=False)
                    packed.write(f"{line}\n".encode())
            file.flush()
            os.fsync(file.fileno())
        if list(read_packed(part)) != ordered:
            raise DataError(f"{part}: reads back differently; nothing was changed")
        part.replace(path)
        _sync(path.parent)
    finally:
        part.unlink(missing_ok=True)


def _sync(folder: Path) -> None:
    """Have the folder's entries on the disk, before what they stand for is removed."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_empty(folder: Path) -> None:
    for inner in sorted(folder.rglob("*"), reverse=True):
        if inner.is_dir() and not any(inner.iterdir()):
            inner.rmdir()
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


@click.command("pack", cls=Command)
@click.option(
    "--results", type=click.Path(path_type=Path), default=Path("fala-results"), show_default=True,
    help="Folder of the records.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def pack_command(results: Path, as_json: bool) -> None:
    """Pack a finished run's records into one small file, records.jsonl.gz in --results.

    Tables and reports read it as they read the records before, and a later run adds to it. Killed
    at any time, the same command goes on.
    """
    done = pack(results)
    if as_json:
        click.echo(json.dumps(asdict(done)))
    else:
        click.echo(
            f"{results / PACKED}: {done.records:,} records ({done.added:,} of them new), "
            f"{done.bytes:,} bytes"
        )
