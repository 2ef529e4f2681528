"""What each operation of a device enters and costs: code, SQL statements, and processor time.

    python benchmarks/costs.py
    python benchmarks/costs.py --backbone minilm.fala --examples 1000 --labels 3 --json

A device has learned from --examples posts of the built-in sample, and is replaced from the built-in
word vectors to a transformer (the built-in one, or --backbone), all of whose texts it has encoded.
Counted at run time: the modules, rooms and functions of fala that an operation enters, and the SQL
statements that it sends. Processor time of all threads: the median over --repeats of one more
label, of a label that changes, a fit of all, and forgetting one example, beside all the others: the
oldest, to which the model before the replacement was fitted, too, and one of the newest.
"""

from __future__ import annotations

import inspect
import sqlite3
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import click
from support.documents import bundle_of
from support.measuring import benchmark, seconds_of

import fala
import fala_export
from fala_sim.playground.sample import sample_rows

_FALA = Path(inspect.getfile(fala)).parent
_PEOPLE = 40  # of the sample; each has some dozens of posts


class Entered:
    """The functions of ``fala`` that are entered.

    Attributes:
        functions: Their modules and names.
    """

    def __init__(self) -> None:
        self.functions: set[tuple[str, str]] = set()

    def counts(self) -> dict[str, int]:
        """Modules, rooms and functions. A room is a folder, or a module beside them."""
        modules = {module for module, _ in self.functions}
        rooms = {module.partition("/")[0] for module in modules}
        return {"modules": len(modules), "rooms": len(rooms), "functions": len(self.functions)}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Record the functions that are entered meanwhile in this thread."""

        def record(frame: FrameType, event: str, _: object) -> None:
            code = frame.f_code
            if event == "call" and not code.co_name.startswith("<"):
                path = Path(code.co_filename)
                if path.is_relative_to(_FALA):
                    module = path.relative_to(_FALA).as_posix()
                    self.functions.add((module, f"{code.co_firstlineno} {code.co_name}"))

        sys.setprofile(record)
        try:
            yield
        finally:
            sys.setprofile(None)


class Statements:
    """Counts SQL statements, of connections that are made from now on.

    Attributes:
        count: How many so far.
    """

    def __init__(self) -> None:
        self.count = 0
        connect = sqlite3.connect

        def counted(*arguments: Any, **options: Any) -> sqlite3.Connection:  # noqa: ANN401
            connection: sqlite3.Connection = connect(*arguments, **options)
            connection.set_trace_callback(self._note)
            return connection

        sqlite3.connect = counted

    def _note(self, _: str) -> None:
        self.count += 1

    def of(self, call: Callable[[], object]) -> int:
        """How many a call sends."""
        before = self.count
        call()
        return self.count - before


def write_releases(folder: Path, backbone: str, names: list[str]) -> None:
    """Word vectors and a transformer with heads of the same labels, and a bridge between them."""
    rows = sample_rows(users=1).public
    texts = [str(row.example) for row in rows]
    labels = [names[_class(text, len(names))] for text in texts]
    bundles = {"old": bundle_of("glove"), "new": bundle_of(backbone)}
    embeddings = []
    for name, bundle in bundles.items():
        head = fala_export.fit_head(bundle.backbone(), texts, labels)
        fala_export.write_release(folder / f"{name}.fala", bundle, head, {})
        embeddings.append(bundle.backbone().encode(texts))
    bridge = fala_export.fit_bridge(bundles["old"].backbone_digest, *embeddings)
    new = folder / "new.fala"
    fala_export.add_bridge(new, fala.Bundle.open(new), bridge, {})


def _class(text: str, count: int) -> int:
    """A class by a text's words, which no head has learned."""
    return sum(map(ord, text)) % count


def posts_of(count: int, names: list[str], seed: int) -> tuple[list[str], list[str]]:
    """Distinct posts, with labels."""
    rows = sample_rows(users=_PEOPLE, seed=seed)
    users = rows.users.values()
    texts = dict.fromkeys(str(row.example) for user in users for row in (*user.train, *user.test))
    chosen = list(texts)[:count]
    if len(chosen) < count:
        raise click.UsageError(f"there are {len(chosen)} posts, fewer than {count}")
    words = ("i", "you", "the", "a")  # this user's taste
    counts = (sum(word in text.split() for word in words) for text in chosen)
    return chosen, [names[count % len(names)] for count in counts]


@benchmark
@click.option("--backbone", default="bert", show_default=True, help="Built-in name or bundle.")
@click.option("--examples", type=click.IntRange(50), default=1000, show_default=True)
@click.option("--labels", type=click.IntRange(2), default=2, show_default=True)
@click.option("--repeats", type=click.IntRange(1), default=7, show_default=True)
def main(backbone: str, examples: int, labels: int, repeats: int, seed: int) -> dict[str, Any]:
    """Count and time the operations of one device."""
    names = [f"label {number}" for number in range(labels)]
    further = 4 * repeats + 8
    texts, given = posts_of(examples + further, names, seed)
    fresh = iter(zip(texts[examples:], given[examples:], strict=True))
    statements = Statements()
    entered: dict[str, dict[str, int]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_releases(folder, backbone, names)
        with fala.Device.create(folder / "device", folder / "old.fala") as device:
            device.learn(texts[:examples], given[:examples])

            def watched(name: str, call: Callable[[], object]) -> None:
                functions = Entered()
                with functions.watching():
                    call()
                entered[name] = functions.counts()

            watched("replace", lambda: device.replace(folder / "new.fala", fala.Budget(0)))
            watched("refine", lambda: device.refine(fala.Budget(40)))
            device.refine(fala.Budget(examples))
            device.confirm()
            device.predict(texts[:1])
            watched("predict", lambda: device.predict(texts[:1]))

            def learn() -> None:
                text, label = next(fresh)
                device.learn([text], [label])

            def medians(**calls: Callable[[], object]) -> dict[str, float]:
                return {
                    name: 1e3 * statistics.median(seconds_of(call)[1] for _ in range(repeats))
                    for name, call in calls.items()
                }

            def relabel() -> None:
                position = names.index(given[0])
                given[0] = names[(position + 1) % labels]
                device.learn(texts[:1], given[:1])

            def forget() -> None:
                device.forget([ids.pop(0)])

            def forget_newest() -> None:
                device.forget([ids.pop()])

            learn()
            ids = [row.id for row in device.examples()]
            watched("learn", learn)
            watched("forget", forget)
            learn()
            sql = {
                "learn": statements.of(learn), "forget": statements.of(forget),
                "predict": statements.of(lambda: device.predict(texts[:1])),
            }  # fmt: skip
            device.fit()
            learn()
            seconds = medians(
                predict=lambda: device.predict(texts[1:2]),
                one_more_label=learn,
                a_label_changed=relabel,
                fit=device.fit,
            )
            ids = [row.id for row in device.examples()]
            seconds |= medians(forget_the_oldest=forget, forget_the_newest=forget_newest)
    return {
        "examples": examples,
        "entered": {
            name: f"{counts['modules']} modules, {counts['rooms']} rooms, "
            f"{counts['functions']} functions"
            for name, counts in entered.items()
        },
        "sql_statements": sql,
        "milliseconds": seconds,
        "ratio": seconds["one_more_label"] / seconds["fit"],
    }


if __name__ == "__main__":
    main()
