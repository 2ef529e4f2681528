"""No operation executes an SQL statement for each row."""

import sqlite3

import pytest

from bridged import TEXTS
from fala import Budget, Device


@pytest.fixture
def statements(monkeypatch):
    sent, connect = [], sqlite3.connect

    def traced(*arguments, **options):
        connection = connect(*arguments, **options)
        connection.set_trace_callback(sent.append)
        return connection

    monkeypatch.setattr(sqlite3, "connect", traced)
    return sent


def test_statements_do_not_depend_on_the_number_of_examples(tmp_path, releases, labels, statements):
    def counts(size):
        texts, given = TEXTS[:size], labels[:size]
        turned = [{"0": "1", "1": "0"}[label] for label in given]
        with Device.create(tmp_path / str(size), releases["old"]) as device:
            calls = {
                "remember": lambda: device.remember(texts),
                "learn": lambda: device.learn(texts, given),
                "other labels": lambda: device.learn(texts, turned),
                "replace": lambda: device.replace(releases["mid"], Budget(0)),
                "refine": lambda: device.refine(Budget(10)),
                "export": lambda: device.export_data(tmp_path / "rows.jsonl"),
                "withdraw labels": lambda: device.unlabel(list(device.examples())[: size // 3]),
                "forget": lambda: device.forget(list(device.examples())[: size // 2]),
                "roll back": device.rollback,
                "encrypt": lambda: device.rotate_key(lambda: bytes(32)),
            }  # fmt: skip
            for name, call in calls.items():
                statements.clear()
                call()
                yield name, len(statements)

    few, many = dict(counts(20)), dict(counts(60))  # of one batch
    assert {name for name in few if many[name] > few[name] + 4} == set()
