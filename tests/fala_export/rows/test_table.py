"""Rows as columns: texts on the disk, numbers in memory."""

import csv
import json
import random
import time
import tracemalloc

import pytest

from fala import DataError, Match
from fala_export.errors import RowError
from fala_export.public_texts import read_public_texts
from fala_export.rows.data_set import gather_rows
from fala_export.rows.row_files import file_rows
from fala_export.rows.table import Rows
from fala_export.rows.user_rows import Row, read_rows
from fala_export.training.public_rows import PublicRows, divide
from full_disk import files_of_at_most

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
    texts = [f"{number} ä\nb\x1ec" * 9_000 for number in range(60)]  # 5 MB, on the disk
    stored = file_rows(table(tmp_path / "a.csv", 60, texts.__getitem__)).rows
    lines = [row.line for row in stored]
    rows = [Row(f"u{at % 7}", "public", texts[at], at % 3, lines[at]) for at in range(60)]
    assert stored == rows and Rows.of(rows) == rows and stored[-1] == rows[-1]
    assert stored[5:9] == rows[5:9] and list(stored.take(stored.positions[::-1])) == rows[::-1]
    assert stored != rows[1:] and stored != [rows[1], *rows[1:]]
    matches = [match("u", ("ä\n", 'b"'), f"c {n}\n") for n in range(3)] + [match("v", (), "d")]
    assert Rows.stored(matches) == matches
    assert Rows.stored(matches).without(["ä\n"])[0].example.history == ('b"',)


def test_values_that_rows_repeat_are_read_as_the_first_time(tmp_path):
    labels = [0, 1, 1.0, "1", " 1", "+1", "01", "yes", "True", False, True, None, float("nan")]
    users = [1, "1", 1.0, True, "True", "u", " u ", None, ""]
    draw, lines = random.Random(0), []
    while len(lines) < 600:
        fields = {
            "text": draw.choice(["a", " b ", "ä"]), "label": draw.choice(labels),
            "user": draw.choice(users), "split": draw.choice(["public", "train", "test"]),
        }  # fmt: skip
        try:
            read_rows([line := json.dumps(fields)])
        except RowError:
            continue  # no row: one without a user, or without a label
        lines.append(line)
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(lines))
    read = file_rows(path).rows
    assert read == read_rows(lines)
    assert {"1", "True", "u", None} == {row.user for row in read}
    for bad in ({"text": " "}, {"text": "a", "pair": ["a", "b"]}, {"split": "tset"}, {"label": []}):
        path.write_text("\n".join([*lines, json.dumps({**json.loads(lines[0]), **bad})]))
        with pytest.raises(RowError, match="line 601"):
            file_rows(path)


def test_memory_does_not_hold_the_texts(tmp_path):
    path = table(tmp_path / "a.csv", 400, lambda number: f"{number} " + "word " * 10_000)
    tracemalloc.start()
    rows = PublicRows.of(file_rows(path).rows)
    assert len(rows.digest) == 64
    assert len(divide(rows.rows, 0, validation=True).training) > 250
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert path.stat().st_size > 2e7 > 1.2e7 > peak


def test_a_full_disk_is_named(tmp_path):
    path = table(tmp_path / "a.csv", 60, lambda number: f"{number} " * 50_000)
    with files_of_at_most(100), pytest.raises(DataError, match=r"File too large; set TMPDIR"):
        file_rows(path)


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
    rows = file_rows(table(tmp_path / "a.csv", 30)).rows
    others = Rows.of([Row(None, "public", f"text {number}", 0, 0) for number in (29, 3, 99)])
    for among in (others, rows.take(rows.positions[[29, 3]])):
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


def test_an_even_division_of_many_documents_is_linear():
    """Ten times the documents take ten times the time, and not a hundred times."""
    seconds = []
    for count in (4_000, 40_000):
        rows = Rows.of(Row(None, "public", f"text {at}", at % 2, at) for at in range(count))
        start = time.process_time()
        assert divide(rows, 0, validation=True).by == "documents"
        seconds.append(time.process_time() - start)
    assert seconds[1] < 30 * seconds[0]
