"""Rows as columns, and their draw while a file is read."""

import csv
import gzip
import random
import tracemalloc
from collections import Counter

import numpy as np
import pytest

from fala import Match
from fala.model.links import LABELS
from fala_export.rows import door
from fala_export.rows.data_set import gather_rows
from fala_export.rows.row_files import file_rows, undivided_rows
from fala_export.rows.table import Rows
from fala_export.rows.texts import read_public_texts
from fala_export.rows.user_rows import Row

HEADER = ("user", "split", "text", "label")


def table(path, count, text=lambda number: f"text {number}"):
    """A file of public rows, by seven users."""
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(HEADER)
        writer.writerows((f"u{at % 7}", "public", text(at), at % 3) for at in range(count))
    return path


def match(user, history, candidate, label=0):
    return Row(user, "public", Match(history, candidate), label, 1)


def test_rows_of_a_file_equal_rows_in_memory(tmp_path):
    texts = [f"{number} ä\nb\x1ec" * 9 for number in range(60)]
    stored = file_rows(table(tmp_path / "a.csv", 60, texts.__getitem__))
    lines = [row.line for row in stored]
    rows = [Row(f"u{at % 7}", "public", texts[at], at % 3, lines[at]) for at in range(60)]
    assert stored == rows and Rows.of(rows) == rows and stored[-1] == rows[-1]
    assert stored[5:9] == rows[5:9] and list(stored.take(np.arange(60)[::-1])) == rows[::-1]
    assert stored != rows[1:] and stored != [rows[1], *rows[1:]]
    matches = [match("u", ("ä\n", 'b"'), f"c {n}\n") for n in range(3)] + [match("v", (), "d")]
    assert Rows.of(matches) == matches
    assert Rows.of(matches).without(["ä\n"])[0].example.history == ('b"',)


@pytest.fixture
def small_door(monkeypatch):
    for name, most in (
        ("MOST_DOCUMENTS", 100), ("MOST_ROWS", 300), ("MOST_ROWS_OF_PEOPLE", 200),
    ):  # fmt: skip
        monkeypatch.setattr(door, name, most)


def drawn(rows):
    """The rows that a door keeps."""
    entry = door.Door(LABELS)
    for row in rows:
        entry.add(row)
    return entry.rows(), entry


def test_a_door_keeps_documents_and_people_whole_however_rows_are_ordered(small_door):
    rows = [
        Row(f"u{at % 90}", "public", f"text {at * 7 % 1_000}", at % 2, at) for at in range(2_700)
    ]
    rare = Row("rare", "public", "text 7", "rare", 2_700)
    kept, entry = drawn([*rows, rare])
    everything = Counter(row.example for row in rows), Counter(row.user for row in rows)
    documents, people = Counter(r.example for r in kept), Counter(r.user for r in kept)
    assert sum(documents[text] == everything[0][text] for text in documents) >= 100
    assert sum(people[name] == everything[1][name] for name in people) >= 200 // 30
    assert len(kept) <= 300 + 200 + 2 * 3 * door.OF_LABEL and entry.beyond and rare in list(kept)
    assert [row.line for row in kept] == sorted(row.line for row in kept)
    shuffled = random.Random(0).sample([*rows, rare], len(rows) + 1)
    again = sorted(drawn(shuffled)[0], key=lambda row: row.line)
    assert again == list(kept)


def test_rows_that_are_left_out_are_counted_and_people_on_devices_are_whole(small_door, tmp_path):
    path = tmp_path / "a.csv"
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(HEADER)
        writer.writerows(
            (f"u{at % 40}", ("public", "train", "test")[at // 40 % 3], f"text {at}", at % 2)
            for at in range(2_400)
        )
    said = []
    file = undivided_rows(path, say=said.append)
    assert file.left_out == {"beyond the draw of documents and people": 2_400 - len(file)}
    assert any("left out beyond the draw" in line for line in said)
    counts = Counter(row.user for row in file if row.split != "public")
    assert set(counts.values()) == {40} and len(counts) == 200 // 60
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(path.read_bytes()))
    assert undivided_rows(tmp_path / "b.csv.gz") == file


def test_memory_is_bounded_by_the_draw(small_door, monkeypatch, tmp_path):
    monkeypatch.setattr(door, "MOST_CHARACTERS", 1_000_000)
    monkeypatch.setattr(door, "MOST_CHARACTERS_OF_PEOPLE", 1_000_000)
    path = table(tmp_path / "a.csv", 300, lambda number: f"{number} " + "word " * 10_000)
    tracemalloc.start()
    assert file_rows(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert path.stat().st_size > 1.5e7 > 7e6 > peak


def test_texts_are_distinct_and_read_when_taken(tmp_path):
    path = table(tmp_path / "a.csv", 90, lambda number: f"text {number % 8}")
    texts = read_public_texts(path)
    assert (len(texts), texts[3], list(texts[2:4])) == (8, "text 3", ["text 2", "text 3"])
    rows = Rows.of([match("u", ("a", "b"), "c"), match("u", ("a", "b"), "b"), match("v", (), "d")])
    assert list(rows.texts()) == ["c", "a", "b", "d"]


def test_documents_are_drawn_with_all_their_rows_and_every_label():
    rows = [Row(f"u{at}", "public", f"text {at % 500}", at % 2, at) for at in range(2_000)]
    whole = Rows.of([*rows, Row("rare", "public", "text 7", "rare", 0)])
    drawn = whole.sample_documents(50)
    documents = {row.example for row in drawn}
    assert len(documents) in {50, 51}
    assert list(drawn) == [row for row in whole if row.example in documents]
    assert {row.label for row in drawn} == {0, 1, "rare"}
    assert set(drawn.sample_documents(20).texts()) < documents
    assert drawn.sample_documents(20) == whole.sample_documents(20)
    assert whole.sample_documents(500) is whole


def test_documents_of_another_file_are_found(tmp_path):
    rows = file_rows(table(tmp_path / "a.csv", 30))
    others = Rows.of([Row(None, "public", f"text {number}", 0, 0) for number in (29, 3, 99)])
    for among in (others, rows.take(np.array([29, 3]))):
        found = rows.where(rows.on_documents_of(among))
        assert [row.example for row in found] == ["text 3", "text 29"]


def test_some_users_are_taken_with_the_public_rows_on_their_documents():
    rows = [Row(None, "public", f"text {number}", number % 2, number) for number in range(30)]
    rows += [Row(f"u{at % 5}", "train", f"text {at}", 0, at) for at in range(15)]
    rows += [Row(f"u{at}", "test", f"test {at}", 0, at) for at in range(5)]
    whole = gather_rows(rows, "")
    some = whole.of_users(["u4", "u1"])
    assert [row.example for row in some.public] == [f"text {at}" for at in (1, 4, 6, 9, 11, 14)]
    assert some.users == {name: whole.users[name] for name in ("u4", "u1")}
    assert [row.line for row in some.users["u1"].train] == [1, 6, 11]
    drawn = whole.drawn_users(3)
    assert len(drawn.users) == 3 and list(drawn.users) == sorted(drawn.users)
    assert drawn == whole.of_users(drawn.users) == whole.drawn_users(3)
    assert whole.drawn_users(5).users == dict(whole.users)
