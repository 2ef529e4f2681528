"""Files of every form and of other kinds, and the one rule for their labels."""

import bz2
import gzip
import io
import json
import pickle
import zipfile

import numpy as np
import pandas as pd
import pytest

from fala import DataError
from fala.model.links import TAGS
from fala_export import fit_head
from fala_export.base.errors import ExportError, RowError
from fala_export.rows import forms
from fala_export.rows.columns import Columns
from fala_export.rows.content import LEAST_UNPACKED
from fala_export.rows.data_set import gather_rows
from fala_export.rows.forms import separator_of
from fala_export.rows.row_files import load_rows, undivided_rows
from fala_export.rows.texts import read_public_texts
from fala_export.rows.user_rows import label_names, rating_of, read_rows

SKIP = Columns(skip_bad_rows=True)

#: How pandas, or a spreadsheet, writes a table, by the file's name.
FORMS = {
    "a.csv": lambda table, path: table.to_csv(path, index=False),
    "index.csv": lambda table, path: table.to_csv(path),
    "a.tsv": lambda table, path: table.to_csv(path, index=False, sep="\t"),
    "semicolons.csv": lambda table, path: table.to_csv(path, index=False, sep=";"),
    "sep.csv": lambda table, path: path.write_text("sep=;\n" + table.to_csv(index=False, sep=";")),
    "marked.csv": lambda table, path: table.to_csv(path, index=False, encoding="utf-8-sig"),
    "utf-16.csv": lambda table, path: table.to_csv(path, index=False, encoding="utf-16"),
    "windows.csv": lambda table, path: table.to_csv(path, index=False, lineterminator="\r\n"),
    "a.csv.gz": lambda table, path: table.to_csv(path, index=False),
    "wrong.csv": lambda table, path: table.to_csv(path, index=False, compression="gzip"),
    "wrong.gz": lambda table, path: table.to_csv(path, index=False, compression=None),
    "a.jsonl": lambda table, path: table.to_json(path, orient="records", lines=True),
    "a.jsonl.gz": lambda table, path: table.to_json(path, orient="records", lines=True),
    "columns.json": lambda table, path: table.to_json(path),
    "indented.json": lambda table, path: table.to_json(path, indent=2),
    "records.json": lambda table, path: table.to_json(path, orient="records", indent=1),
    "split.json": lambda table, path: table.to_json(path, orient="split"),
    "index.json": lambda table, path: table.to_json(path, orient="index"),
    "table.json": lambda table, path: table.to_json(path, orient="table"),
    "lists.json": lambda table, path: path.write_text(json.dumps(table.to_dict("list"))),
    "named.json": lambda table, path: path.write_text(
        json.dumps({"rows": table.to_dict("records")})
    ),
    "a.parquet": lambda table, path: table.to_parquet(path),
    "no-ending": lambda table, path: table.to_parquet(path),
    "a.parquet.gz": lambda table, path: path.write_bytes(gzip.compress(table.to_parquet())),
}


@pytest.mark.parametrize(
    ("values", "labels", "cells"),
    [
        ([1, 0, 1], [1, 0, 1], None),
        ([1.0, 0.0, 1.0], [1, 0, 1], None),
        ([True, False, True], [1, 0, 1], None),
        ([1.0, None, 0.0], [1, None, 0], None),
        (["01", "02", "1"], ["01", "02", "1"], None),
        (["yes ", " yes", "no\t"], ["yes", "yes", "no"], None),
        (["Yes", "yes", "no"], ["Yes", "yes", "no"], None),
        (["true", "false", "unproven"], ["true", "false", "unproven"], None),
        (["1", "2", "n/a"], ["1", "2", "n/a"], None),
        (["1", "2.0", "n/a"], ["1", "2.0", "n/a"], ["1", "2", "n/a"]),
        (["1.50", "+01", "1_0"], ["1.50", "+01", "1_0"], None),
        (["1", "0", "-1"], ["1", "0", "-1"], [1, 0, -1]),
        (["1.0", "-0", "1e0"], ["1.0", "-0", "1e0"], [1, 0, 1]),
        (["+1", "-1", "+.0"], ["+1", "-1", "+.0"], [1, -1, 0]),
        (["TRUE", "false", "True"], ["TRUE", "false", "True"], [1, 0, 1]),
    ],
    ids=str,
)
def test_the_labels_are_the_same_in_every_form(tmp_path, values, labels, cells):
    """Where everything is a text, some texts are numbers: ``cells`` are the labels there."""
    table = pd.DataFrame({"text": ["a", "b\nb", "ç;,"], "label": values, "user": [7, 8, 9]})
    for name, write in FORMS.items():
        if name == "lists.json" and None in values:
            continue  # pandas writes NaN there
        write(table, tmp_path / name)
        file = undivided_rows(tmp_path / name)
        rows = list(file)
        are_texts = any(kind in name for kind in ("csv", "tsv", "wrong"))
        assert [row.label for row in rows] == (cells if cells and are_texts else labels), name
        assert [row.user for row in rows] == ["7", "8", "9"], name
        assert [row.example for row in rows] == ["a", "b\nb", "ç;,"] and not file.has_splits
        assert file.columns == Columns(text="text", label="label", user="user"), name
        if name == "a.csv":  # a text may have lines of its own
            assert [row.line for row in rows] == [2, 3, 5]


def test_tags_are_integers_or_strings_as_labels_are(tmp_path):
    def tags(name, content):
        (tmp_path / name).write_text(content)
        return [row.label for row in undivided_rows(tmp_path / name, link=TAGS)]

    assert tags("a.csv", "text,label\na,1|2\nb,2\n") == [{1, 2}, {2}]
    assert tags("b.csv", "text,label\na,1|x\nb,1\n") == [{"1", "x"}, {"1"}]
    row = '{{"text": "{}", "label": {}}}\n'
    assert tags("a.jsonl", row.format("a", "[1, 2]") + row.format("b", "[]")) == [{1, 2}, set()]
    assert tags("b.jsonl", row.format("a", '["1"]') + row.format("b", "[2]")) == [{"1"}, {"2"}]


def test_rows_in_memory_have_the_same_labels():
    def row(label, split="public"):
        return {"text": "a", "label": label, "split": split, "user": 3}

    def read(*values):
        return read_rows(map(json.dumps, [*map(row, values), row(1, "train"), row(0, "test")]))

    rows = read(True, 1.0, 1, False)
    assert [row.label for row in rows] == [1, 1, 1, 0, 1, 0]
    data = gather_rows(rows, "")
    assert data.labels == fit_head(np.eye(4), [row.label for row in data.public]).labels == (0, 1)
    # One text makes all labels strings, and equal values are still one label.
    assert [row.label for row in read(1, " 0 ", 0.0)] == ["1", "0", "0", "1", "0"]
    assert label_names([np.float32(1), True, 0.0, "01"]) == ("0", "01", "1")


def test_blanks_are_counted_and_labels_that_nearly_agree_are_named(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text, label,user\na,yes ,u\nb,yes,u \nc,Yes,u\nd, no,u\n")
    said = []
    rows = undivided_rows(path, say=said.append)
    assert [row.label for row in rows] == ["yes", "yes", "Yes", "no"]
    assert {row.user for row in rows} == {"u"}
    assert said == [
        f"{path}: blanks around 2 labels and 1 user were removed",
        f"{path}: labels that differ only by case, blanks or leading zeros are different labels: "
        "Yes, yes",
    ]


def test_labels_that_look_like_others_are_named(tmp_path):
    path = tmp_path / "a.csv"
    said = []
    path.write_text("text,label\na,1\nb,\uff11\nc,NaN\n")
    undivided_rows(path, say=said.append)
    assert "zeros are different labels: 1, \uff11" in said[0] and "NaN is a label here" in said[1]
    path.write_text("text,label\na,x;y\nb,z\n")
    undivided_rows(path, link=TAGS, say=said.append)
    assert 'separated by "|"' in said[2]


def test_a_label_that_no_release_can_have_is_named(tmp_path):
    path, said = tmp_path / "a.csv", []
    path.write_text('text,label,split\na,1,public\nb,"X\x1b\nY",public\nc,"x\x1b\ny",public\n')
    with pytest.raises(RowError, match=r"a\.csv, line 3: label has control characters"):
        load_rows(path)
    undivided_rows(path, say=said.append)
    assert said[0].isprintable()


def test_numbers_have_a_decimal_comma_between_semicolons(tmp_path):
    table = pd.DataFrame({"text": ["1,0", "b"], "label": [1.0, 0.0], "user": [7.0, None]})
    path = tmp_path / "a.csv"
    table.to_csv(path, index=False, sep=";", decimal=",")
    rows = undivided_rows(path)
    assert [(row.example, row.label, row.user) for row in rows] == [("1,0", 1, "7"), ("b", 0, None)]
    path.write_text("sep=;\ntext;label;a\nx;4,5;1,0\ny;1;0,0\n")
    assert [row.label for row in undivided_rows(path, link=rating_of(1, 5))] == [4.5, 1]
    tags = undivided_rows(path, Columns(labels="a"), TAGS)
    assert [row.label for row in tags] == [{"a"}, set()]


def test_a_tag_may_have_the_name_of_a_field_with_another_column(tmp_path):
    (tmp_path / "a.csv").write_text("text,who,user,spam\na,u1,1,0\n")
    rows = undivided_rows(tmp_path / "a.csv", Columns(user="who", labels="user,spam"), TAGS)
    assert [(row.user, row.label) for row in rows] == [("u1", {"user"})]


@pytest.mark.parametrize(
    ("header", "columns", "separator"),
    [
        ("text;label;user", Columns(), ";"),
        ('"text";"label (0,1)";user', Columns(label="label (0,1)"), ";"),
        ("Comment (a, b or c);stars;Rater", Columns(text="Comment (a, b or c)"), ";"),
        ("post\tis_spam\tuser; or none", Columns(), "\t"),
        ("body|target|author", Columns(), "|"),
        ("x,y;z", Columns(text="x", label="y;z"), ","),
        ("x,y;z", Columns(text="x,y", label="z"), ";"),
        ("x;y,z", Columns(), ","),
        ("text;a,label", Columns(), None),
        ("text", Columns(), ","),
    ],
)
def test_the_header_has_the_separator(tmp_path, header, columns, separator):
    if separator is not None:
        assert separator_of(header, ",", columns.expected) == separator
        return
    (tmp_path / "a.csv").write_text(header + "\nsecret;1,2\n")
    with pytest.raises(DataError, match=r"a\.csv: its first line has commas and semicolons.*sep=;"):
        undivided_rows(tmp_path / "a.csv", columns)
    (tmp_path / "a.csv").write_text("sep=;\n" + header + "\nsecret;1,2\n")
    with pytest.raises(DataError, match="no column 'label'; its columns are text, a,label"):
        undivided_rows(tmp_path / "a.csv", columns)
    (tmp_path / "a.csv").write_text("sep=;\n\n \ntext;label\na;x,y\n")
    assert [row.label for row in undivided_rows(tmp_path / "a.csv")] == ["x,y"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_excel_in_europe_writes_other_separators(tmp_path, separator, encoding):
    """Quoted cells with separators, quotes and lines, and names of columns with a line end."""
    texts = ["a;b, c|d\te", 'say "no"\r\nor not', "ç"]
    table = pd.DataFrame({"Post": texts, "Rater": [1.0, 2.0, 2.0], "my\nstars": [4.5, 1.0, 3.0]})
    path = tmp_path / "a.csv"
    table.to_csv(path, index=False, sep=separator, decimal=",", encoding=encoding)
    for name in ("a.csv", "a.tsv", "a.txt"):
        path = path.rename(tmp_path / name)
        file = undivided_rows(path, Columns(label="my\nstars"), rating_of(1, 5))
        assert [row.example for row in file] == texts and file.columns.text == "Post"
        assert [row.label for row in file] == [4.5, 1, 3]
        assert [row.user for row in file] == ["1", "2", "2"]


def test_columns_are_guessed_in_every_form(tmp_path):
    table = pd.DataFrame({"Post": list("abc"), "hateful": [1, 0, 1], "annotator": [7, 8, 9]})
    guessed = Columns(text="Post", label="hateful", user="annotator")
    for name, write in FORMS.items():
        write(table, tmp_path / name)
        assert undivided_rows(tmp_path / name).columns == guessed, name
    path = tmp_path / "a.csv"
    table.assign(text=list("xyz"), label=[0, 1, 0]).to_csv(path, index=False)
    file = undivided_rows(path, Columns(user="hateful"))  # the fields' own names come first
    assert file.columns == Columns(text="text", label="label", user="hateful")
    assert undivided_rows(path, Columns(labels="label,hateful"), TAGS).columns.label is None
    table.assign(hateful=[1, 2, 3]).to_csv(path, index=False)
    with pytest.raises(DataError, match="no column 'label'; its columns are Post, hateful"):
        undivided_rows(path)
    assert undivided_rows(path, Columns(label="hateful")).columns == guessed
    table.assign(toxic=[0, 1, 0]).to_csv(path, index=False)
    with pytest.raises(DataError, match="--label"):  # which of them?
        undivided_rows(path)
    path.write_text('history,candidate,label,content\n[],a,1,secret\n[],b,0,""\n')
    assert len(undivided_rows(path)) == 2


TABBED = """user\ttext\tlabel
u1\tgood\t1
u2\t"Best thing ever\t1
u3\tnot 5" but 6"\t0
u4\tLoved it"\t0
u5\t"both"\t1
"""


@pytest.mark.parametrize("columns", [Columns(), SKIP])
def test_quotes_between_tabs_are_signs_of_the_texts_unless_all_close(tmp_path, columns):
    path, said = tmp_path / "a.tsv", []
    path.write_text(TABBED)
    rows = undivided_rows(path, columns, say=said.append)
    texts = ["good", '"Best thing ever', 'not 5" but 6"', 'Loved it"', '"both"']
    assert [row.example for row in rows] == texts and not said
    assert [(row.user, row.label) for row in rows] == [
        ("u1", 1), ("u2", 1), ("u3", 0), ("u4", 0), ("u5", 1)
    ]  # fmt: skip
    path.write_text(TABBED.replace('"Best', "Best").replace('"both"', '"say ""no"""'))
    assert [row.example for row in undivided_rows(path, columns)][-1] == 'say "no"'
    path.write_text(TABBED.replace("u3\t", "u3 "))  # a line that is damaged besides
    with pytest.raises(RowError, match="line 4: has 2 cells, but the header has 3"):
        undivided_rows(path)
    rows = undivided_rows(path, SKIP, say=said.append)
    assert [row.user for row in rows] == ["u1", "u2", "u4", "u5"]
    assert "1 bad row left out, line 4" in said[0]


@pytest.mark.parametrize("name", FORMS)
def test_names_of_columns_have_no_blanks_around_them_and_no_line_ends(tmp_path, name):
    table = pd.DataFrame({
        "Post ": ["a", "b"], "my\r\nown  class": ["x", "y"], "\u00a0Rater\n": [7, 8]
    })  # fmt: skip
    FORMS[name](table, tmp_path / name)
    for label in ("my own class", "my\r\nown  class"):
        rows = undivided_rows(tmp_path / name, Columns(label=label))
        assert [(row.example, row.label, row.user) for row in rows] == [
            ("a", "x", "7"), ("b", "y", "8")
        ]  # fmt: skip


def test_a_source_without_rows_is_named(tmp_path, monkeypatch):
    path = tmp_path / "a.csv"
    path.write_text("text,label\n")
    with pytest.raises(DataError, match=r"a\.csv: there are no rows"):
        undivided_rows(path)
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(DataError, match="standard input is closed"):
        undivided_rows("-")


def test_numbers_that_are_not_whole_are_no_labels(tmp_path):
    for name in ("a.csv", "a.jsonl", "a.parquet"):
        splits = ["public", "public", "train", "test"]
        table = {"text": list("abcd"), "label": [0.5, 1.0] * 2, "user": ["u"] * 4, "split": splits}
        FORMS[name](pd.DataFrame(table), tmp_path / name)
        with pytest.raises(DataError, match="ratings"):
            load_rows(tmp_path / name)


def office(*names):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name in names:
            archive.writestr(name, "secret")
    return stream.getvalue()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (office("[Content_Types].xml", "xl/a.xml"), r"an Excel workbook \(\.xlsx\).*as CSV"),
        (office("docProps/a.xml", "b" * 9_000, "xl/a.xml"), "an Excel workbook.*export the sheet"),
        (office("[Content_Types].xml", "word/document.xml"), "is a document, not a table"),
        (office("rows.csv"), "a ZIP archive.*unpack it"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", r"an old Excel workbook \(\.xls\)"),
        (b"SQLite format 3\0", "an SQLite database.*export the table as CSV"),
        (pickle.dumps({"secret": 1}), "a pickled Python object"),
        (b"\n <!DOCTYPE html><p>secret", "an HTML or XML page"),
        (bz2.compress(b"secret"), "an archive other than gzip"),
        (gzip.compress(gzip.compress(b"secret")), "packed twice"),
        (gzip.compress(office("rows.csv")), "a ZIP archive"),
        ("text,label\nsecret,1\n".encode("utf-16-le"), "UTF-16 without a byte-order mark"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "byte 1 is not UTF-8|NUL"),
        (gzip.compress(b"text,label\nsecret,1\n" * 99)[:-9], "damaged or truncated"),
        (b'["a secret text", "another"]', "line 1: must be a JSON object"),
        (b'[{"text": "secret", "label": 1},\n{"text": "sec', r"line 2: is not JSON at column 10"),
        (b'[{"text": "secret", "label": 1},\n{"text": "b", "label": 1}', "line 2: .* truncated"),
        (b'{"text": ["secret"], "label": []}', "columns differ in length"),
        (b"this is my secret text,1,u5\nb,0,u6\n", "looks like a row of texts"),
        (b"my secret,yes\nb,no\n", "its columns are yes, 1 with blanks"),
        (b"text,label,label\nsecret,1,1\n", "several columns are named 'label'"),
        (b'text,label\nb,1\n"secret,1\nc,0\n', "line 3: is not a valid row .*unexpected end"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",  # bytes of gzip have a time
)
@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.dat"])
def test_files_of_other_kinds_are_named(tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content)
    if name == "a.jsonl" and words.startswith(("looks", "its", "several", "line 3")):
        words = "line 1: is not JSON|" + words
    for columns in (Columns(), SKIP):
        with pytest.raises(DataError, match=words) as caught:
            load_rows(tmp_path / name, columns)
        assert str(tmp_path / name) in str(caught.value) and "secret" not in str(caught.value)


@pytest.mark.parametrize("unit", [b"\0" * 99, b"a" * 9_000 + b",1\n", b"a" * 99], ids=len)
def test_a_gzip_that_unpacks_to_far_too_much_is_refused(tmp_path, unit):
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b"text,label\n" + unit * (6 * LEAST_UNPACKED // len(unit))))
    with pytest.raises(DataError, match=r"100 times its size.*gunzip|16 million|NUL bytes"):
        undivided_rows(path)
    with pytest.raises(ExportError, match=r"more than 100 times|16 million|NUL bytes"):
        read_public_texts(path.rename(tmp_path / "texts.gz"))


QUOTED = b'text,label\na,1\n"b,0\nc,1\nd" e,0\nf,0\n'
TABLE = b'text,label\na,1\n"secret\nx",1,2\n ,0\nb\0b,0\nsecr\xe9t,1\n"secret"x,1\n,\n"b\nb",0\n'
LINES = b"""{"text": "a", "label": 1}
{"text": "secret"
{"text": "a", "label": {"secret": 1}}

{"text": "", "label": 1}
["secret"]
{"text": "secr\xe9t", "label": 1}
{"text": "b", "label": 0}"""
ARRAY = b'[{"text": "a", "label": 1},\n"secret",\n\n{"label": 0}, {"text": "b", "label": 0}]'


@pytest.mark.parametrize(
    ("content", "skipped", "lines", "reason"),
    [
        (TABLE, "5 bad rows left out, lines 3, 5, 6, 7, 8", [2, 10], "has 3 cells"),
        (QUOTED, "3 bad rows left out, lines 3, 4, 5", [2, 6], "is not a valid row of a table"),
        (LINES, "5 bad rows left out, lines 2, 3, 5, 6, 7", [1, 8], "is not JSON at column 18"),
        (ARRAY, "2 bad rows left out, lines 2, 4", [1, 4], "must be a JSON object"),
    ],
    ids=["table", "quoted", "lines", "array"],
)
def test_bad_rows_are_skipped_on_request(tmp_path, capsys, content, skipped, lines, reason):
    path = tmp_path / "a.dat"
    path.write_bytes(content)
    with pytest.raises(RowError, match=rf"{path}, line [23]: {reason}") as caught:
        undivided_rows(path)
    assert "secret" not in str(caught.value)
    rows = undivided_rows(path, SKIP)
    assert ([row.label for row in rows], [row.line for row in rows]) == ([1, 0], lines)
    printed = capsys.readouterr().err
    assert printed.startswith(f"{path}: {skipped}; the first: {reason}")
    assert "secret" not in printed and printed.count("\n") == 1


def test_rows_of_tables_without_lines_are_counted(tmp_path):
    pd.DataFrame({"text": ["a", "", "c"], "label": [0, 1, 0]}).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(
        RowError, match=r"a\.parquet, row 2: has no text, because its text is empty"
    ):
        undivided_rows(tmp_path / "a.parquet")
    said = []
    assert len(undivided_rows(tmp_path / "a.parquet", SKIP, say=said.append)) == 2
    assert "1 bad row left out, row 2" in said[0]


def test_public_texts_come_from_every_form(tmp_path):
    table = pd.DataFrame({"text": list("aba"), "label": [0, 1, 1], "split": ["public"] * 3})
    for name, write in FORMS.items():
        if name not in {"wrong.gz", "no-ending"}:
            write(table, tmp_path / name)
            assert list(read_public_texts(tmp_path / name)) == ["a", "b"]
    (tmp_path / "a.txt").write_bytes(gzip.compress(b"\xef\xbb\xbfa\r\n\r\nb\na\n"))
    assert list(read_public_texts(tmp_path / "a.txt")) == ["a", "b"]


def test_a_long_table_of_tabs_is_judged_by_its_first_lines(tmp_path, monkeypatch):
    lines = [f'"a\ttext {number}"\t{number % 2}\n' for number in range(9)]
    path = tmp_path / "a.tsv"
    path.write_text("".join(["text\tlabel\n", *lines]))
    for most in (1 << 24, 50):
        monkeypatch.setattr(forms, "_LOOKED_AT", most)
        read = undivided_rows(path)
        assert [row.example for row in read] == [f"a\ttext {number}" for number in range(9)]
        assert [row.line for row in read] == [*range(2, 11)]
