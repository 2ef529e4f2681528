import os
from pathlib import Path

import pytest

from conversions import run
from fala import Match
from fala.base.errors import DataError
from fala_sim.data.conversion import Conversion, ConvertedRow, folded
from fala_sim.data.left_out import LeftOut
from fala_sim.data.output import save
from fala_sim.data.tables import filled, keep_good, read_chunks, read_columns, read_lines
from sim_command import fails


@pytest.mark.parametrize("split", ["public", "train"])
@pytest.mark.parametrize("copy", ["A text", "a  TEXT\n", "Ａ text"])
def test_a_conversion_rejects_leaked_test_documents(split, copy):
    with pytest.raises(DataError, match=f"row 1, a {split} row, is one that user 'u' is"):
        Conversion([ConvertedRow("v", split, copy, 1), ConvertedRow("u", "test", "A text", 0)])
    with pytest.raises(DataError, match="one that user 'u' is tested on"):
        Conversion(
            [
                ConvertedRow("v", split, Match((), copy), 1),
                ConvertedRow("u", "test", Match((), "A text"), 0),
            ]
        )


def test_a_conversion_rejects_test_candidates_in_the_users_train_histories():
    tested = ConvertedRow("u", "test", Match(("b",), "A film"), 1)
    with pytest.raises(DataError, match="'u' is tested on 1 document that this user's train"):
        Conversion([ConvertedRow("u", "train", Match(("a  film",), "c"), 1), tested])
    others = [
        ConvertedRow("v", "train", Match(("A film",), "c"), 1),
        ConvertedRow("w", "public", Match(("A film",), "d"), 1),
    ]
    later = ConvertedRow("u", "test", Match(("A film",), "e"), 1)
    assert Conversion([*others, tested, later]).counts()["test_documents"] == 2


def test_folding_ignores_case_spaces_and_spelling():
    assert folded(" Straße\u00a0\n ﬁne") == folded("STRASSE fine") == "strasse fine"
    assert folded("one two") != folded("onetwo")


def test_counts_are_those_of_the_rows():
    left_out = LeftOut()
    left_out.add("damaged rows of x", "line 3: torn")
    left_out.add("damaged rows of x", "line 4: torn")
    left_out.add("ratings below 4", count=7)
    left_out.add("nothing at all", count=0)
    rows = [ConvertedRow("v", "public", "a", label) for label in (0, 1, 2)]
    rows += [
        ConvertedRow("u", "train", "b", 2),
        ConvertedRow("u", "test", "c", 0),
        ConvertedRow("u", "test", "d", 0),
    ]
    conversion = Conversion(rows, left_out)
    assert conversion.counts() == {
        "users": {
            "u": {"rows": 3, "documents": 3, "splits": {"test": 2, "train": 1},
                  "labels": {"0": 2, "2": 1}},
        },
        "public": {"rows": 3, "documents": 1, "splits": {"public": 3},
                   "labels": {"0": 1, "1": 1, "2": 1}},
        "documents": 3,
        "test_documents": 2,
        "left_out": {"damaged rows of x": 2, "ratings below 4": 7},
    }  # fmt: skip
    assert conversion.summary() == [
        "warning: left out 2 damaged rows of x; the first: line 3: torn",
        "left out 7 ratings below 4",
        "u: 3 examples, 66.7 % test, 33.3 % label 2",
        "1 user: 3 documents, 2 of them test only",
        "public: 3 labels of others on 1 document, 33.3 % label 1, 33.3 % label 2",
    ]


def test_a_table_is_text_by_row(tmp_path):
    path = tmp_path / "t.tsv"
    path.write_bytes("\ufeffa\tb\n1\tNA\r\n\n3\nbad\t4\n8\t\u20289".encode())
    frame, left_out = read_columns(path, ("b", "a")), LeftOut()
    assert [*frame.itertuples(name=None)] == [
        (1, "NA", "1"), (2, "", "3"), (3, "4", "bad"), (4, "\u20289", "8"),
    ]  # fmt: skip
    kept = keep_good(frame, filled(frame["b"]), "no b", path, left_out)
    assert kept.index.tolist() == [1, 3, 4]
    assert left_out.lines() == ["warning: left out 1 damaged rows of t.tsv; the first: row 2: no b"]
    with pytest.raises(DataError, match=r"t.tsv, row 2: no b"):
        keep_good(frame[1:2], filled(frame["b"])[1:2], "no b", path, left_out)
    path.write_bytes(b'a,b\n1,"two, ""three"""\n')
    assert read_columns(path, ("b",), sep=",")["b"].tolist() == ['two, "three"']
    path.write_bytes(b"1\t2\n3\t4\n5\t6\n")
    chunks = read_chunks(path, ("a", "b"), header=False, rows=2)
    assert [chunk["b"].tolist() for chunk in chunks] == [["2", "4"], ["6"]]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a\tc\n1\t2\n", r"t.tsv: no column 'b'; expected a, b"),
        (b"", r"t.tsv: cannot be read as a table: No columns"),
        (b"a\tb\n", r"t.tsv has no rows"),
        (b"a\tb\n1\t2\t3\n", r"t.tsv, row 1: more values than columns"),
        (
            b"a\tb\n1\t2\n1\t2\t3\n",
            r"t.tsv: cannot be read as .*Expected 2 fields in line 3",
        ),
        (b"a\tb\n1\t\xff\n", r"t.tsv: not UTF-8"),
    ],
)
def test_an_unusable_table_is_an_error(tmp_path, content, words):
    (tmp_path / "t.tsv").write_bytes(content)
    with pytest.raises(DataError, match=words):
        read_columns(tmp_path / "t.tsv", ("a", "b"))


def test_an_unreadable_file_is_an_error(tmp_path):
    for read in (read_lines, lambda path: read_columns(path, ("a",))):
        for path in (tmp_path / "absent", tmp_path):
            with pytest.raises(DataError, match="cannot read"):
                read(path)
    (tmp_path / "lines").write_bytes(b"one\r\n\ntwo\x0b")
    assert read_lines(tmp_path / "lines") == ["one", "", "two\x0b"]


def test_save_is_atomic(tmp_path):
    path = tmp_path / "out.jsonl"
    path.write_bytes(b"old")

    def broken():
        yield b"new"
        raise OSError(28, "No space left on device")

    def interrupted():
        yield b"new"
        raise KeyboardInterrupt

    with pytest.raises(DataError, match="No space left"):
        save(broken(), path)
    with pytest.raises(KeyboardInterrupt):
        save(interrupted(), path)
    assert path.read_bytes() == b"old"
    for bad in (tmp_path, tmp_path / "absent" / "out", path / "out"):
        with pytest.raises(DataError, match="cannot write"):
            save([b"new"], bad)
    with pytest.raises(DataError, match="not a regular file"):
        save([b"new"], Path(os.devnull))
    save([b"new", b"er"], path)
    assert path.read_bytes() == b"newer"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", [
    "lewidi", "detox", "mind", "movielens", "scale-reviews", "crehate", "anime", "books-ratings",
])  # fmt: skip
def test_a_folder_without_the_files_ends_in_one_line(tmp_path, name):
    fails(run(name, tmp_path), tmp_path)
    fails(run(name, tmp_path / "absent"), tmp_path)
    (tmp_path / "file").touch()
    fails(run(name, tmp_path / "file"), tmp_path)
