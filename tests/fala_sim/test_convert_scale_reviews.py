import pytest

from fala.base.errors import DataError
from fala_sim.data.annotators import Document
from fala_sim.data.formats.scale_reviews import read_reviews
from fala_sim.data.left_out import LeftOut


def write(folder, writer, reviews, labels, kind="label.3class"):
    writer_folder = folder / writer
    writer_folder.mkdir()
    (writer_folder / f"subj.{writer}").write_bytes(
        b"".join(text if isinstance(text, bytes) else text.encode() + b"\n" for text in reviews)
    )
    (writer_folder / f"{kind}.{writer}").write_text("".join(f"{label}\n" for label in labels))


def read(folder, **options):
    left_out = LeftOut()
    documents = read_reviews(folder, left_out, **options)
    return sorted(documents, key=lambda document: document.text), left_out


def test_a_review_has_the_class_of_its_line(tmp_path):
    write(tmp_path, "A+B", ["a film , é .", "another \u2028 film ."], [0, 2])
    write(tmp_path, "C+D", ["a third ."], [1])
    (tmp_path / "README.txt").write_text("no writer")
    documents, left_out = read(tmp_path)
    assert documents == [
        Document("a film , é .", {"A+B": 0}),
        Document("a third .", {"C+D": 1}),
        Document("another \u2028 film .", {"A+B": 2}),
    ]
    assert left_out.counts() == {}


def test_damaged_lines_are_counted_and_do_not_shift_classes(tmp_path):
    write(tmp_path, "A", ["one", "", "four", "ONE", "six"], [0, 2, "x", 1, 2])
    documents, left_out = read(tmp_path)
    assert documents == [Document("one", {"A": 0}), Document("six", {"A": 2})]
    assert left_out.lines() == [
        "warning: left out 1 empty reviews; the first: subj.A, line 2",
        "warning: left out 1 reviews without a class of 0, 1 or 2; the first: label.3class.A, "
        "line 3",
        "left out 1 reviews that occur twice",
    ]


def test_ratings_are_numbers_from_0_to_1(tmp_path):
    ratings = ["0.15", "1", "", "1.5", "nan", "x"]
    write(tmp_path, "A", ["one", "two", "three", "four", "five", "six"], ratings, "rating")
    documents, left_out = read(tmp_path, rated=True)
    assert documents == [Document("one", {"A": 0.15}), Document("two", {"A": 1.0})]
    assert list(left_out.counts().values()) == [4]


def test_a_missing_line_is_an_error(tmp_path):
    write(tmp_path, "A", ["one", "two"], [0])
    with pytest.raises(DataError, match=r"subj.A has 2 lines, but .*label.3class.A has 1"):
        read(tmp_path)
