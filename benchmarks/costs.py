"""What each operation of a device enters and costs: code, SQL statements, and processor time.

    python benchmarks/costs.py
    python benchmarks/costs.py --backbone minilm.fala --examples 1000 --labels 3 --json

A device has learned from --examples posts of the built-in sample, and is replaced from the built-in
word vectors to a transformer (the built-in one, or --backbone), all of whose texts it has encoded.
Counted at run time: the modules, rooms and functions of fala that an operation enters, and the SQL
statements that it sends. Processor time of all threads: the median over --repeats of one more
label, of a label that changes, a fit of all, and forgetting one example, beside all the others: the
oldest, to which the model before the replacement was fitted, too, and one of the newest. A
prediction with n-grams and the encoding of a text by the release's backbone alone take turns on 100
other texts.
"""

from __future__ import annotations

import inspect
import sqlite3
import statistics
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import click
from support.documents import add_bridge, bundle_of, documents_of, write_release
from support.measuring import benchmark, median_ratio, processor_seconds, timed

import fala
from fala_sim.playground.sample import sample_rows

_UNSEEN = 100
_FALA = Path(inspect.getfile(fala)).parent


class Watch:
    """Watches what calls enter in ``fala``, and SQL connections that are made from now on."""

    def __init__(self) -> None:
        self._functions, self._statements = set[tuple[str, str]](), list[str]()
        connect = sqlite3.connect

        def counted(*arguments: Any, **options: Any) -> sqlite3.Connection:  # noqa: ANN401
            connection: sqlite3.Connection = connect(*arguments, **options)
            connection.set_trace_callback(self._statements.append)
            return connection

        sqlite3.connect = counted

    def _enter(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and not code.co_name.startswith("<"):
            path = Path(code.co_filename)
            if path.is_relative_to(_FALA):
                module = path.relative_to(_FALA).as_posix()
                self._functions.add((module, f"{code.co_firstlineno} {code.co_name}"))

    def entered(self, call: Callable[[], object]) -> str:
        """Count the modules, rooms and functions that a call enters in this thread.

        A room is a folder, or a module beside them.
        """
        self._functions.clear()
        sys.setprofile(self._enter)
        try:
            call()
        finally:
            sys.setprofile(None)
        modules = {module for module, _ in self._functions}
        rooms = {module.partition("/")[0] for module in modules}
        return f"{len(modules)} modules, {len(rooms)} rooms, {len(self._functions)} functions"

    def statements(self, call: Callable[[], object]) -> int:
        """Count the SQL statements that a call sends."""
        self._statements.clear()
        call()
        return len(self._statements)


def write_releases(folder: Path, backbone: str, names: list[str]) -> None:
    """Word vectors and a transformer with heads of the same labels, and a bridge between them."""
    texts = [str(row.example) for row in sample_rows(users=1).public]
    labels = [names[sum(map(ord, text)) % len(names)] for text in texts]
    old, new = (
        write_release(folder / f"{name}.fala", bundle_of(bundle), texts, labels)
        for name, bundle in (("old", "glove"), ("new", backbone))
    )
    add_bridge(new, old, texts)


@benchmark
@click.option("--backbone", default="bert", show_default=True, help="Built-in name or bundle.")
@click.option("--examples", type=click.IntRange(50), default=1000, show_default=True)
@click.option("--labels", type=click.IntRange(2), default=2, show_default=True)
@click.option("--repeats", type=click.IntRange(1), default=7, show_default=True)
def main(backbone: str, examples: int, labels: int, repeats: int, seed: int) -> dict[str, Any]:
    """Count and time the operations of one device."""
    names = [f"label {number}" for number in range(labels)]
    texts, _ = documents_of(examples + 4 * repeats + 8 + _UNSEEN, seed)
    given = [names[len(text.split()) % labels] for text in texts]  # what no head has learned
    fresh = iter(zip(texts[examples:], given[examples:], strict=True))
    watch = Watch()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_releases(folder, backbone, names)
        with fala.Device.create(folder / "device", folder / "old.fala") as device:
            device.learn(texts[:examples], given[:examples])

            def learn() -> None:
                text, label = next(fresh)
                device.learn([text], [label])

            def relabel() -> None:
                position = names.index(given[0])
                given[0] = names[(position + 1) % labels]
                device.learn(texts[:1], given[:1])

            def predict(text: str = texts[0]) -> None:
                device.predict([text])

            def forget(position: int = 0) -> None:
                device.forget([ids.pop(position)])

            def medians(**calls: Callable[[], object]) -> dict[str, float]:
                return {
                    name: 1e3 * statistics.median(timed(call).processor for _ in range(repeats))
                    for name, call in calls.items()
                }

            replace = partial(device.replace, folder / "new.fala", fala.Budget(0))
            entered = {"replace": watch.entered(replace)}
            entered["refine"] = watch.entered(partial(device.refine, fala.Budget(40)))
            device.refine(fala.Budget(examples))
            device.confirm()
            predict()
            entered["predict"] = watch.entered(predict)
            learn()
            ids = [row.id for row in device.examples()]
            entered |= {"learn": watch.entered(learn), "forget": watch.entered(forget)}
            learn()
            calls = {"learn": learn, "forget": forget, "predict": predict}
            sql = {name: watch.statements(call) for name, call in calls.items()}
            device.fit()
            learn()
            seconds = medians(
                predict=predict, one_more_label=learn, a_label_changed=relabel, fit=device.fit
            )
            ids = [row.id for row in device.examples()]
            newest = partial(forget, -1)
            seconds |= medians(forget_the_oldest=forget, forget_the_newest=newest)
            predicted, encoded = iter(texts[-_UNSEEN:]), iter(texts[-_UNSEEN:])
            encode = bundle_of(backbone).backbone().encode
            turns = processor_seconds(
                {
                    "predict": lambda: predict(next(predicted)),
                    "encode": lambda: encode([next(encoded)]),
                },
                _UNSEEN,
            )
    return {
        "examples": examples, "entered": entered, "sql_statements": sql, "milliseconds": seconds,
        "prediction_to_encoding": median_ratio(turns["predict"], turns["encode"]),
        "one_more_label_to_fit": seconds["one_more_label"] / seconds["fit"],
    }  # fmt: skip


if __name__ == "__main__":
    main()
