"""Rows from tables, and the division of those that have no splits."""

import csv
import json
import re
from dataclasses import replace

import numpy as np
import pytest

from command_lines import works
from fala import DataError, Match, MissingExtraError
from fala.model.links import TAGS
from fala_export.base.errors import RowError
from fala_export.rows.columns import Columns
from fala_export.rows.division import document_key
from fala_export.rows.row_files import file_rows, load_rows, undivided_rows
from fala_export.rows.user_rows import Row, numbers_as_classes, rating_of

HEADER = ("post", "hateful", "annotator", "added")
COLUMNS = Columns(text="post", label="hateful", user="annotator")


def posts(users=8, each=24, seed=0):
    """Rows of a vendor's table: all users label posts of a common pool."""
    draw = np.random.default_rng(seed)
    words = ["good", "soup", "clown", "match", "awful", "lovely", "song", "late"]
    pool = sorted({" ".join(draw.choice(words, size=5)) for _ in range(4 * each)})
    rows = []
    for user in range(users):
        chosen = draw.choice(pool, size=each + user, replace=False)
        rows += [(t, int("awful" in t or "clown" in t), f"u{user}", "2026") for t in chosen]
    return rows


def write(path, rows, header=HEADER):
    with path.open("w", newline="", encoding="utf-8-sig") as stream:
        writer = csv.writer(stream)
        writer.writerows([header, *rows])
    return path


def save_to_disk(folder, parts):
    """Write what ``datasets.Dataset.save_to_disk`` of Hugging Face writes."""
    ipc = pytest.importorskip("pyarrow.ipc")
    folder.mkdir()
    names = [f"data-{at:05}-of-{len(parts):05}.arrow" for at in range(len(parts))]
    for name, table in zip(names, parts, strict=True):
        with ipc.new_stream(folder / name, table.schema) as stream:
            stream.write_table(table)
    state = {"_data_files": [{"filename": name} for name in names], "_split": None}
    (folder / "state.json").write_text(json.dumps(state))


def test_numbers_that_stand_for_names_are_the_names(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    named = {"names": ["fine", "rude"], "_type": "ClassLabel"}
    features = {
        "text": {"dtype": "string", "_type": "Value"}, "label": named,
        "tags": {"feature": named, "_type": "Sequence"}, "split": {
            "names": ["public", "train", "test"], "_type": "ClassLabel",
        },
    }  # fmt: skip
    columns = {
        "text": list("abcd"), "label": [0, 1, -1, None], "tags": [[0, 1], [1], [], [-1]],
        "user": ["u"] * 4, "split": [0, 2, 1, 1],
    }  # fmt: skip
    plain = pyarrow.table(columns)
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    table = plain.replace_schema_metadata(metadata)
    parquet.write_table(table, tmp_path / "a.parquet")
    save_to_disk(tmp_path / "a", [table[:2], table[2:]])
    save_to_disk(tmp_path / "b", [plain])
    (tmp_path / "b" / "dataset_info.json").write_text(json.dumps({"features": features}))
    for name in ("a.parquet", "a", "b"):
        rows = undivided_rows(tmp_path / name)
        assert [row.label for row in rows] == ["fine", "rude", None, None]
        assert [row.split for row in rows] == ["public", "test", "train", "train"]
        rows = undivided_rows(tmp_path / name, Columns(label="tags"), TAGS)
        assert [row.label for row in rows] == [{"fine", "rude"}, {"rude"}, set(), set()]
        ratings = undivided_rows(tmp_path / name, link=rating_of(0, 1))
        assert [row.label for row in ratings] == [0, 1, None, None]
    parquet.write_table(
        pyarrow.table({**columns, "label": [0, 1, -1, 2]}).replace_schema_metadata(metadata),
        tmp_path / "a.parquet",
    )
    with pytest.raises(RowError, match="row 4: label is 2, but the file has names for 0 to 1"):
        undivided_rows(tmp_path / "a.parquet")


@pytest.mark.parametrize(
    ("files", "match"),
    [
        ({}, "no state.json"),
        ({"state.json": "{}"}, "names no files"),
        ({"state.json": "["}, "names no files"),
        ({"state.json": '{"_data_files": []}'}, "is empty"),
        ({"state.json": '{"_data_files": [{"filename": "../a"}]}'}, "cannot read"),
        ({"state.json": '{"_data_files": [{"filename": "a"}]}', "a": "no Arrow"}, "cannot read"),
        ({"dataset_dict.json": '{"splits": ["train"]}'}, "several splits"),
    ],
)
def test_other_folders_and_damaged_files_are_rejected(tmp_path, files, match):
    pytest.importorskip("pyarrow")
    (tmp_path / "b.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match="cannot read"):
        file_rows(tmp_path / "b.parquet")
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=match):
        file_rows(tmp_path)


def test_parquet_needs_pyarrow(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match="pip install pyarrow"):
        file_rows(tmp_path / "a.parquet")


def test_the_division_is_by_user_and_document(tmp_path):
    path = write(tmp_path / "posts.csv", posts())
    file = file_rows(path, COLUMNS)
    rows, divided = file, file.division
    assert "2 of 8 users are simulated" in divided and "seed 0" in divided
    devices = {row.user for row in rows if row.split == "test"}
    assert devices == {"u7", "u6"}  # the busiest
    held_out = {document_key(row) for row in rows if row.split == "test"}
    rest = {document_key(row) for row in rows if row.split != "test"}
    assert not held_out & rest
    for user in devices:
        splits = [row.split for row in rows if row.user == user]
        assert splits.count("train") >= splits.count("test") > 0
    assert file.left_out == {"on held-out documents": len(posts()) - len(rows)}
    assert file_rows(path) == file and file_rows(path, COLUMNS, seed=1) != rows
    data = load_rows(path, COLUMNS)
    assert data.source == f"{path} ({divided})" and set(data.users) == devices


def test_a_table_with_a_missing_split_is_rejected(tmp_path):
    rows = [("a", 0, "u", "train"), ("b", 1, "u", "")]
    for ordered in (rows, rows[::-1]):
        with pytest.raises(RowError, match="line 3: split is missing here or in the rows before"):
            file_rows(write(tmp_path / "x.csv", ordered, ("text", "label", "user", "split")))


def test_a_table_of_matches(tmp_path):
    header = ("history", "candidate", "label", "user", "split")
    rows = [
        (json.dumps(["a", "b"]), "c", "yes", "u", "train"),
        ("[]", "d", "no", "u", "test"),
    ]
    read = file_rows(write(tmp_path / "x.csv", rows, header))
    assert read == [
        Row("u", "train", Match(("a", "b"), "c"), "yes", 2),
        Row("u", "test", Match((), "d"), "no", 3),
    ]


@pytest.mark.parametrize(
    "columns",
    [
        {"text": "post", "label": "post"}, {"label": "text"}, {"text": "a", "labels": "a, b"},
        {"labels": "a,a"}, {"text": "post", "user": "post"},
    ],
    ids=str,
)  # fmt: skip
def test_a_column_is_for_one_field(columns):
    with pytest.raises(DataError, match=r"the column '.*' is for .* and for .*; name another"):
        Columns(**columns)
    assert Columns(text="label", label="text").renamed() == {"text": "label", "label": "text"}


@pytest.mark.parametrize(
    ("header", "cells", "columns", "message"),
    [
        (("posts", "label"), ("a", 1), Columns(), "no column 'text'; its columns are posts, l"),
        (("text", "label"), ("a", 1), Columns(user="who"), "no column 'who'"),
        (("text", "label"), ("a",), Columns(), "line 2: has 1 cell, but the header has 2"),
        ((), (), Columns(), "is empty"),
        (("text", "label", "s"), ("a", 1, "x"), Columns(split="s"), "split is the column 's'"),
        (("history", "candidate", "label"), ("a", "b", 1), Columns(), "history must be a JSON"),
    ],
)
def test_unusable_tables_are_rejected(tmp_path, header, cells, columns, message):
    with pytest.raises(DataError, match=message):
        file_rows(write(tmp_path / "x.csv", [cells], header), columns)


def test_latin_1_is_named(tmp_path):
    path = tmp_path / "posts.csv"
    path.write_bytes("post,label\na,1\ncaf\u00e9,0\n".encode("cp1252"))
    with pytest.raises(RowError, match=r"posts\.csv, line 3: byte 4 is not UTF-8; .*CSV UTF-8"):
        file_rows(path, Columns(text="post"))


def test_rows_that_are_left_out_have_a_reason(tmp_path):
    rows = [*posts(), *[(f"no label {at}", "", f"u{at % 3}", "") for at in range(40)]]
    path = write(tmp_path / "x.csv", [*rows, ("", 1, "u1", ""), *[("a", "", "u7", "")] * 3])
    file = file_rows(path, replace(COLUMNS, skip_bad_rows=True))
    reasons = ["that cannot be read", "on held-out documents", "without a label"]
    assert list(file.left_out) == reasons and file.left_out[reasons[2]] == 40
    assert sum(file.left_out.values()) + len(file) == len(rows) + 4


@pytest.mark.parametrize("user", ["u0", ""])
def test_without_users_who_play_devices_all_rows_make_the_release(tmp_path, user, capsys):
    rows = [(f"post {number}", number % 2, user, "") for number in range(30)]
    path = write(tmp_path / "x.csv", [*rows, ("no label", "", user, "")])
    file = file_rows(path, replace(COLUMNS, skip_bad_rows=True))
    assert {row.split for row in file} == {"public"} and len(file) == 30
    why = "none of 1 user has 12 labelled documents" if user else "no row names a user"
    assert why in file.division and "nobody is simulated" in capsys.readouterr().err
    with pytest.raises(DataError, match=f"{why}.*; name the column of users"):
        load_rows(path, replace(COLUMNS, skip_bad_rows=True))


SPLIT = ("text", "label", "split", "user")


@pytest.mark.parametrize(
    "names", [("train", "validation", "test"), ("Train", "dev", "Test"), ("train", "val", "test"),
              ("training", "valid", "testing"), ("train", "train", "test")],
)  # fmt: skip
@pytest.mark.parametrize("user", ["", "u"])
def test_splits_of_documents_are_understood(tmp_path, names, user):
    """The hub's splits are of documents: train and validation make the release, test rows none."""
    rows = []
    for at in range(200):
        split, label = names[min(at % 5 // 2, 2)], -1 if at % 5 == 4 else at % 2
        rows.append((f"post {at}", label, split, user and f"u{at % 7}"))
    path = write(tmp_path / "x.csv", rows, SPLIT)
    if user and names[1] == "train":  # the splits of devices: nothing is public
        with pytest.raises(DataError, match=r'no public rows.* Write "public" for rows'):
            load_rows(path)
        return
    file = file_rows(path)
    assert file.left_out["of the split test"] == 40
    assert "40 test rows are left out" in file.division
    assert set(file.label_values) == {0, 1}
    kept = {int(row.example.removeprefix("post ")) % 5 for row in file}
    assert kept == {0, 1, 2, 3}
    if user:  # divided by user, as without splits
        assert len(load_rows(path).users) == 1
    else:
        assert {row.split for row in file} == {"public"}


def test_splits_of_documents_and_of_users_are_not_mixed(tmp_path):
    good = [("a post", 1, "public", ""), ("another", 0, "public", "u1")]
    for row, reason in (
        (("a third", 1, "dev", "u1"), 'has the split "validation", and others have "public"'),
        (("a third", 1, "train", ""), "a train or test row needs a user"),
        (("a third", 1, "fold2", ""), 'split must be "public", "train" or "test"; got "fol'),
    ):
        path = write(tmp_path / "x.csv", [*good, row], SPLIT)
        with pytest.raises(RowError, match=f"line 4: {reason}"):
            file_rows(path)
        file = file_rows(path, Columns(skip_bad_rows=True))
        assert file.left_out == {"that cannot be read": 1} and len(file) == 2


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("1", "2"), None),
        (("a", "b", "1", "2"), None),
        (("1", "2", "3"), "3 numbers from 1 to 3 are used as classes"),
        (("1.0", "2.5", "3", "n/a"), "as well as 'n/a' are used as classes.*all are numbers"),
    ],
)
def test_numbers_used_as_classes_are_reported(names, message):
    assert re.search(message or "^$", numbers_as_classes(names, "x.csv"))


def test_decimal_commas_are_rejected():
    with pytest.raises(DataError, match=r"0\.5 4\.5 uses them .* a point \('4,5' has a comma"):
        numbers_as_classes(("4,5", "1", "0.5"), "x.csv")


def test_the_command_reads_a_table(tmp_path):
    path = write(tmp_path / "posts.csv", posts(each=60))
    command = ("--old", "glove", "--new", "glove", "--data", path, "--users", 1, "--json")
    walk = works(*command)
    assert f"{path}: columns: text = post, label = hateful, user = annotator\n" in walk.stderr
    values = json.loads(walk.stdout)
    assert len(values["users"]) == 1 and "no splits: 2 of 8" in values["data"]
    reasons = values["left_out"]["reasons"]
    assert list(reasons) == ["on held-out documents", "from users beyond --users"]
    users = load_rows(path).users.values()
    used = values["public"] + sum(len(user.train) + len(user.test) for user in users)
    used -= reasons["from users beyond --users"]
    assert values["left_out"]["rows"] == sum(reasons.values()) == len(posts(each=60)) - used
