import csv
from functools import partial

import pytest

from conversions import read_by
from fala.base.errors import DataError
from fala_sim.data.annotators import Document
from fala_sim.data.formats.crehate import read_crehate


def write(folder, annotations):
    """The publisher's three files; one text has a line break."""
    tables = {
        "CREHate_CP.csv": [["ID", "Text", "Singapore_Hate"], ["CP-1", "two\nlines, é", "1.0"]],
        "CREHate_SBIC.csv": [
            ["ID", "Text", "Singapore_Hate"], ["SBIC-1", 'said "so"', ""],
            ["SBIC-2", "Said  \"So\"", ""],
        ],
        "CREHate_raw_annotations.csv": [
            ["ID", "annotator_id", "nationality", "age", "annotation"],
            *([post, person, "Australia", "", label] for post, person, label in annotations),
        ],
    }  # fmt: skip
    for name, rows in tables.items():
        with (folder / name).open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows(rows)
    return folder


read = partial(read_by, read_crehate)


def test_annotations_are_joined_with_the_posts(tmp_path):
    annotations = [
        ("SBIC-1", "7", "0"), ("CP-1", "7", "1"), ("CP-1", "8", "0"), ("SBIC-1", "8", "2"),
        ("SBIC-2", "7", "1"), ("CP-1", "9", "hate"), ("SBIC-9", "7", "1"),
    ]  # fmt: skip
    documents, left_out = read(write(tmp_path, annotations))
    assert documents == [
        Document("two\nlines, é", {"7": 1, "8": 0}),
        Document('said "so"', {"7": 0}),
    ]
    assert left_out.lines() == [
        "left out 1 annotations of people who did not know",
        "left out 1 annotations by a person who had labelled the same text",
        "warning: left out 1 annotations without a label, an annotator or a text; the first: "
        "CREHate_raw_annotations.csv, row 6",
        "warning: left out 1 annotations of unknown posts; the first: "
        "CREHate_raw_annotations.csv, row 7",
    ]


def test_one_joined_file_is_read_too(tmp_path):
    (tmp_path / "rows.csv").write_text('annotator,text,hateful\na,"one, two",1\nb,three,0\n')
    assert read(tmp_path)[0] == [Document("one, two", {"a": 1}), Document("three", {"b": 0})]


def test_a_quotation_without_an_end_is_an_error(tmp_path):
    (tmp_path / "rows.csv").write_text('annotator,text,hateful\na,"b,1\n')
    with pytest.raises(DataError, match=r"rows.csv: cannot be read as .*EOF inside string"):
        read(tmp_path)
