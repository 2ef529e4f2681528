import json

import pytest

from checkout import real_data
from fala import Pair
from fala.base.errors import DataError
from studies.houlsby.glue import SOURCES


def converted(name, folder):
    return SOURCES[name].convert(SOURCES[name].find(folder))


def write_cola(folder):
    (folder / "train.tsv").write_text(
        "gj04\t1\t\tOne sentence.\ngj04\t0\t*\tSentence another.\nbad line\n"
        "gj04\t1\t\tthe  CAR honked.\ngj04\t2\t\tNo label.\n"
    )
    (folder / "val.tsv").write_text("gj04\t1\t\tTo validate.\ngj04\t0\t*\tValidate to.\n")
    (folder / "dev.tsv").write_text("gj04\t1\t\tThe car honked.\ngj04\t1\t\tThe car honked.\n")
    return folder


def write_mrpc(folder, pairs=20):
    def lines(start, count):
        return "".join(
            f"{n % 2}\t{n}\t{n + 1}\tFirst {n}.\tSecond {n}.\n" for n in range(start, start + count)
        )

    header = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    (folder / "msr_paraphrase_train.txt").write_bytes(
        b"\xef\xbb\xbf" + (header + lines(0, pairs)).encode()
    )
    (folder / "msr_paraphrase_test.txt").write_text("\ufeff" + lines(100, 5))
    return folder


def test_splits_are_kept_and_test_documents_are_in_no_other_split(tmp_path):
    conversion = converted("cola", write_cola(tmp_path))
    assert [(row.split, row.judged, row.label) for row in conversion.rows] == [
        ("public", "One sentence.", 1),
        ("public", "Sentence another.", 0),
        ("train", "To validate.", 1),
        ("train", "Validate to.", 0),
        ("test", "The car honked.", 1),
        ("test", "The car honked.", 1),  # the official set, as it is
    ]
    assert conversion.left_out.counts() == {
        "damaged lines of train.tsv": 2, "rows of texts that are in another split": 1,
    }  # fmt: skip


def test_pairs_become_rows_of_pairs(tmp_path):
    conversion = converted("mrpc", write_mrpc(tmp_path))
    test = next(row for row in conversion.rows if row.split == "test")
    assert (test.example, test.label) == (Pair("First 100.", "Second 100."), 0)
    splits = [row.split for row in conversion.rows]
    assert [splits.count(split) for split in ("public", "train", "test")] == [18, 2, 5]
    assert json.loads(next(iter(conversion.lines())))["pair"][0].startswith("First ")
    assert converted("mrpc", tmp_path).rows == conversion.rows


def test_invalid_files_are_errors(tmp_path):
    with pytest.raises(DataError, match=r"train\.tsv: no such file; get it from its publisher"):
        converted("cola", tmp_path)
    with pytest.raises(DataError, match="rows for training, validation and test"):
        converted("mrpc", write_mrpc(tmp_path, 3))


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("name", "rows"), [("cola", [7235, 1296, 1043]), ("mrpc", [3668, 408, 1725])]
)
def test_the_real_files(name, rows):
    conversion = converted(name, real_data(name))
    splits = [row.split for row in conversion.rows]
    assert [splits.count(split) for split in ("public", "train", "test")] == rows
    assert not any(reason.startswith("damaged") for reason in conversion.left_out.counts())
