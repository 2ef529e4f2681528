"""Damages a device's folder in every way by chance, and looks whether each is named and mended.

    python benchmarks/damaged_stores.py
    python benchmarks/damaged_stores.py --count 20000 --seed 7 --json

A device with two slots, old logits and words has its rows, columns, pages or files changed. Then an
app uses it: whatever is not answered with finite numbers must be refused with FaLA's own error, in
time. At last it is repaired: it must open, and know no example that was not there before.
``named`` is the share of damages that were refused, with an error of FaLA's; others did no harm.
``rescued`` is the share of examples that are there after the repair.
Prints what went wrong, and ends with status 1 if anything did.
"""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import click
import numpy as np

import fala
from fala.release import VECTORS, VOCABULARY, WORD_VECTORS, array_bytes

_STORE = "store.sqlite3"
_WORDS, _TEXTS, _DIMENSION = 60, 40, 8
#: Seconds that one device may take, at most.
_LIMIT = 5.0

_VALUES = (
    None, 0, 1, -1, 2**40, -(2**63), 1.5, 1e300, 9e999, "", "a", "1", "[", "[[]]", "[999]", "{}",
    "[1.0]", "[true]", "[" * 3000, "theta", "b'", "\u0000", b"", b"\0", b"\xff" * 4,
    b"\0\0\xc0\x7f", b"\0\0\x80\x7f" * 8, b"\0" * 4096,
)  # fmt: skip


#: Changes to what may well be, which nobody can tell.
_UNSEEN = {
    f"{kind} of {column}"
    for kind in ("column", "swap", "delete")
    for column in (
        "texts.text", "examples.document", "examples.history", "examples.id", "examples.label",
        "examples.added", "examples.labelled",
    )
}  # fmt: skip


def prepare(folder: Path) -> tuple[Path, Path, list[str], set[tuple[str, str | None]]]:
    """A device with two slots, the release that comes next, texts, and what it knows."""
    draw = np.random.default_rng(0)
    vectors = draw.standard_normal((_WORDS + 1, _DIMENSION)).astype(np.float16)
    words = ["<unk>", *(f"w{number}" for number in range(_WORDS))]
    texts = [" ".join(words[1 + at] for at in draw.integers(_WORDS, size=5)) for _ in range(_TEXTS)]
    labels = [int(at) for at in draw.integers(2, size=_TEXTS)]
    releases = []
    for age in range(3):
        files = {VOCABULARY: "\n".join([*words, ""]).encode(), VECTORS: array_bytes(vectors + age)}
        manifest = fala.Manifest(f"release {age}", WORD_VECTORS, _DIMENSION, "float16")
        path = folder / f"{age}.fala"
        fala.write_bundle(path, manifest, files)
        bundle = fala.Bundle.open(path)
        head = fala.fit_head(bundle.backbone(), texts, labels, lexical=age > 0)
        fala.write_release(path, bundle, head, {})
        releases.append(path)
    device = folder / "device"
    with fala.Device.create(device, releases[0], positive="1") as made:
        given = [label if at % 3 else None for at, label in enumerate(labels)]
        made.learn(texts, given)
        made.replace(releases[1])
        known = {(str(row.example), row.label) for row in made.examples()}
    return device, releases[2], texts, known


def damage(folder: Path, draw: random.Random) -> str:
    """Change something in a device's folder; says what."""
    kind = draw.choice(
        ["column"] * 6 + ["swap", "delete", "byte", "bytes", "page", "cut", "bundle"]
    )
    file = folder / _STORE
    if kind == "bundle":
        file = draw.choice(sorted((folder / "bundles").iterdir()))
        kind = draw.choice(["byte", "cut", "gone"])
        if kind == "gone":
            file.unlink()
            return "a bundle gone"
    if kind in ("column", "swap", "delete"):
        return _change_row(file, kind, draw)
    data = bytearray(file.read_bytes())
    if kind == "cut":
        data = data[: draw.randrange(len(data))]
    elif kind == "page":
        one, other = (4096 * draw.randrange(max(len(data) // 4096, 1)) for _ in range(2))
        data[one : one + 4096] = data[other : other + 4096]
    else:
        for _ in range(1 if kind == "byte" else 200):
            data[draw.randrange(len(data))] = draw.randrange(256)
    file.write_bytes(data)
    return f"{kind} of {file.suffix}"


def _change_row(file: Path, kind: str, draw: random.Random) -> str:
    with closing(sqlite3.connect(file, isolation_level=None)) as db:
        db.execute("PRAGMA ignore_check_constraints = ON")
        tables = [
            name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        table = draw.choice(sorted(tables))
        columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
        column = draw.choice(columns)
        keys = [row[5] for row in db.execute(f"PRAGMA table_info({table})")]
        key = columns[keys.index(1)]
        rows = db.execute(f"SELECT {key} FROM {table}").fetchall()
        if not rows:
            return "nothing"
        which = draw.choice(rows)[0]
        try:
            if kind == "delete":
                db.execute(f"DELETE FROM {table} WHERE {key} = ?", (which,))
            elif kind == "swap":
                other = draw.choice(rows)[0]
                db.execute(
                    f"UPDATE {table} SET {column} = (SELECT {column} FROM {table} WHERE {key} = ?)"
                    f" WHERE {key} = ?", (other, which)
                )  # fmt: skip
            elif draw.random() < 0.1:
                db.execute(
                    f"UPDATE {table} SET {column} = CAST(x'41ff42' AS TEXT) WHERE {key} = ?",
                    (which,),
                )
            else:
                value = draw.choice(_VALUES)
                db.execute(f"UPDATE {table} SET {column} = ? WHERE {key} = ?", (value, which))
        except sqlite3.Error:
            return "nothing"
    return f"{kind} of {table}.{column}"


def use(folder: Path, release: Path, texts: list[str]) -> list[fala.FalaError]:
    """What an app does; gives what was refused."""
    refused: list[fala.FalaError] = []

    def tried(call: Callable[..., object], *arguments: object) -> None:
        try:
            result = call(*arguments)
            if isinstance(result, np.ndarray) and not np.isfinite(result).all():
                raise ValueError("an answer that is not finite")
        except fala.FalaError as error:
            refused.append(error)

    try:
        device = fala.Device.open(folder)
    except fala.FalaError as error:
        return [error]
    with device:
        tried(device.predict, texts[:3])
        tried(device.decide, texts[:3])
        tried(lambda: [*device.examples()])
        tried(device.learn, texts[:2], ["0", "1"])
        tried(device.fit)
        tried(device.rollback)
        tried(device.predict, texts[:3])
        tried(device.replace, release)
        tried(device.predict, texts[:3])
        tried(device.forget, [2])
        tried(repr, device)
    return refused


@click.command()
@click.option("--count", default=500, show_default=True, help="Devices to damage.")
@click.option("--seed", default=0, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(count: int, seed: int, as_json: bool) -> None:
    """Damage devices, use them, and repair them."""
    draw, wrong, kinds = random.Random(seed), Counter[str](), Counter[str]()
    named, slowest, mended, rescued = 0, 0.0, 0, 0.0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        device, release, texts, known = prepare(folder)
        contents = {text for text, _ in known}
        for _ in range(count):
            copy = folder / "copy"
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(device, copy)
            what = damage(copy, draw)
            kinds[what.partition(".")[0]] += 1
            started = time.perf_counter()
            try:
                damaged = folder / "damaged"
                shutil.rmtree(damaged, ignore_errors=True)
                shutil.copytree(copy, damaged)
                refused = use(copy, release, texts)
                named += bool(refused)
                report = fala.Device.repair(damaged, release)
                with fala.Device.open(damaged) as opened:
                    found = [str(row.example) for row in opened.examples()]
                    if not np.isfinite(opened.predict(texts[:3])).all():
                        raise ValueError("an answer that is not finite, after a repair")
                    opened.fit()
                mended += report.whole
                rescued += len({*found} & contents) / len(contents) / count
                # A row that was changed to another good one is another row.
                if not report.problems and {*found} != contents and what not in _UNSEEN:
                    wrong[f"changed unsaid: {what}"] += 1
            except Exception as error:
                last = traceback.extract_tb(error.__traceback__)[-1]
                place = f"{Path(last.filename).name}:{last.lineno}"
                wrong[f"{what}: {type(error).__name__} at {place}: {error!s:.160}"] += 1
            slowest = max(slowest, time.perf_counter() - started)
    if slowest > _LIMIT:
        wrong[f"{slowest:.1f} s for one"] += 1
    figures = {
        "count": count, "named": named / count, "mended": mended, "rescued": rescued,
        "wrong": sum(wrong.values()), "slowest_s": slowest,
    }  # fmt: skip
    if as_json:
        click.echo(json.dumps(figures))
    else:
        click.echo("  ".join(f"{key} {value:.4g}" for key, value in figures.items()))
        for line, times in wrong.most_common():
            click.echo(f"{times:6} x {line}")
    if wrong:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
