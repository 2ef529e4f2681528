"""Rows as pandas and tools for annotation write them."""

import json
from dataclasses import replace

import pandas as pd
import pytest

from fala import DataError
from fala.model.links import LABELS, TAGS
from fala_export.base.errors import RowError
from fala_export.rows.columns import Columns
from fala_export.rows.row_files import undivided_rows
from fala_export.rows.user_rows import rating_of

SKIP = Columns(skip_bad_rows=True)


@pytest.mark.parametrize("orient", ["columns", "index", "split", "records", "table"])
@pytest.mark.parametrize(
    "index", [None, ["m-1", "m-2", "m-3"], [7, 8, 9], ["2024-01-01", "label", "x"]], ids=str
)
@pytest.mark.parametrize("size", [1, 3])
def test_every_orient_of_pandas_is_read(tmp_path, orient, index, size):
    table = pd.DataFrame({"body": list("abc"), "label": ["x", "y", "x"], "score": [1.5, 2, 3]})
    if index is not None:
        table = table.set_axis(pd.Index(index, name="message"))
    path = tmp_path / "a.json"
    for indent in (None, 2):
        table[:size].to_json(path, orient=orient, indent=indent)
        rows = undivided_rows(path)
        assert [(row.example, row.label) for row in rows] == [
            ("a", "x"), ("b", "y"), ("c", "x")
        ][:size]  # fmt: skip


def test_values_without_names_of_columns_are_named(tmp_path):
    pd.DataFrame({"text": ["secret"], "label": [1]}).to_json(tmp_path / "a.json", orient="values")
    with pytest.raises(RowError, match=r"without names of columns; .*orient=.records"):
        undivided_rows(tmp_path / "a.json")


#: Rows as tools for annotation export them, and the texts and labels that they are.
TOOLS = {
    "Prodigy": (
        [
            {"text": "a", "label": "POLITICS", "answer": "accept"},
            {"text": "b", "label": "POLITICS", "answer": "reject"},
            {"text": "c", "label": "SPORT", "answer": "ignore"},
        ],
        [("a", "POLITICS")],
    ),
    "Prodigy's choice": (
        [
            {"text": "a", "options": [{"id": "x"}], "accept": ["x"], "answer": "accept"},
            {"text": "b", "options": [{"id": "x"}], "accept": [], "answer": "ignore"},
        ],
        [("a", "x")],
    ),
    "Label Studio": ([{"text": "a", "label": {"choices": ["Pos"]}}], [("a", "Pos")]),
    "Label Studio's list": ([{"text": "a", "label": [{"choices": ["Pos"]}]}], [("a", "Pos")]),
    "doccano": ([{"id": 1, "text": "a", "label": ["Pos"], "Comments": []}], [("a", "Pos")]),
    "Argilla": (
        [
            {"text": "a", "annotation": "x", "status": "Validated"},
            {"text": "b", "annotation": "x", "status": "Discarded"},
        ],
        [("a", "x")],
    ),
}


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_rows_of_tools_for_annotation(tmp_path, tool, form):
    records, expected = TOOLS[tool]
    path, said = tmp_path / f"a.{form}", []
    if form == "jsonl":
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
    else:  # a cell has the JSON of a list or an object
        cells = {
            key: [value if isinstance(value, str | int) else json.dumps(value) for value in column]
            for key, column in pd.DataFrame(records).items()
        }
        pd.DataFrame(cells).to_csv(path, index=False)
    file = undivided_rows(path, say=said.append)
    assert [(row.example, row.label) for row in file] == expected
    lost = len(records) - len(expected)
    assert file.left_out == ({"that the annotator rejected or ignored": lost} if lost else {})
    assert ["left out that the annotator" in remark for remark in said] == [True] * bool(lost)


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_several_choices_are_tags_and_no_class(tmp_path, form):
    path, choices = tmp_path / f"a.{form}", {"choices": ["Pos", "Neg"]}
    if form == "jsonl":
        path.write_text(json.dumps({"text": "a", "label": choices}))
    else:
        pd.DataFrame({"text": ["a"], "label": [json.dumps(choices)]}).to_csv(path)
    with pytest.raises(RowError, match="a list of 2 values, but labels exclude one another"):
        undivided_rows(path)
    assert undivided_rows(path, link=TAGS)[0].label == {"Pos", "Neg"}
    path.write_text(path.read_text().replace("choices", "taxonomy"))
    for link in (LABELS, TAGS, rating_of(0, 1)):
        with pytest.raises(RowError, match="label must be"):
            undivided_rows(path, link=link)


def test_the_whole_json_of_label_studio_is_named(tmp_path):
    (tmp_path / "a.json").write_text('[{"id": 1, "annotations": [], "data": {"text": "secret"}}]')
    with pytest.raises(DataError, match="Label Studio's full JSON; export them as JSON-MIN or CSV"):
        undivided_rows(tmp_path / "a.json")


@pytest.mark.parametrize(
    ("record", "columns", "message"),
    [
        ({"text": "a", "verdict": "x"}, Columns(), "no column 'label'; its columns are text, verd"),
        ({"words": "a", "label": "x"}, Columns(), "no column 'text'; its columns are words, label"),
        ({"text": "a", "label": 1, "user": "u"}, Columns(user="who"), "no column 'who'; its colum"),
    ],
)
@pytest.mark.parametrize("write", [json.dumps, lambda row: f"[{json.dumps(row)}]"])
def test_a_column_that_no_json_row_has_is_named(tmp_path, record, columns, message, write):
    path = tmp_path / "a.json"
    path.write_text(write(record))
    for skip in (False, True):
        with pytest.raises(DataError, match=message):
            undivided_rows(path, replace(columns, skip_bad_rows=skip))
