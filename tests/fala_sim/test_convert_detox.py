from functools import partial

import pytest

from conversions import read_by, run
from fala.base.errors import DataError
from fala_sim.data.annotators import Document
from fala_sim.data.formats.detox import read_detox
from sim_command import fails

COMMENTS = "rev_id\tcomment\tyear\tlogged_in\tns\tsample\tsplit\n"
VERDICTS = {
    "aggression": "rev_id\tworker_id\taggression\taggression_score\n",
    "attack": "rev_id\tworker_id\tquoting_attack\trecipient_attack\tthird_party_attack\t"
    "other_attack\tattack\n",
    "toxicity": "rev_id\tworker_id\ttoxicity\ttoxicity_score\n",
}


def comment(revision, text):
    return f"{revision}\t{text}\t2002\tFalse\tarticle\trandom\ttrain\n"


def score(revision, worker, value):
    return f"{revision}\t{worker}\t{float(value < 0)}\t{float(value)}\n"


def write(folder, comments, verdicts, kind="aggression"):
    path = folder / f"{kind}_annotated_comments.tsv"
    path.write_text(COMMENTS + "".join(comments), encoding="utf-8")
    path = folder / f"{kind}_annotations.tsv"
    path.write_text(VERDICTS[kind] + "".join(verdicts), encoding="utf-8")
    return folder


read = partial(read_by, read_detox)


def test_a_score_below_zero_is_aggressive(tmp_path):
    comments = [comment(37675, "`-NEWLINE_TOKENThis is not ``creative``.TAB_TOKENé `")]
    scores = dict(enumerate((-3, -2, -1, 0, 1, 2, 3)))
    write(tmp_path, comments, [score(37675, worker, value) for worker, value in scores.items()])
    documents, left_out = read(tmp_path)
    labels = {"0": 1, "1": 1, "2": 1, "3": 0, "4": 0, "5": 0, "6": 0}
    assert documents == [Document("`-\nThis is not ``creative``.\té `", labels)]
    assert left_out.counts() == {}


def test_the_other_kinds(tmp_path):
    (tmp_path / "a").mkdir()
    verdicts = ["7\t1\t0.0\t0.0\t0.0\t0.0\t0.0\n", "7\t2\t0.0\t1.0\t0.0\t0.0\t1.0\n"]
    write(tmp_path / "a", [comment(7, "text")], verdicts, "attack")
    assert read(tmp_path / "a")[0] == [Document("text", {"1": 0, "2": 1})]
    (tmp_path / "t").mkdir()  # this one's revisions are written as fractions
    write(
        tmp_path / "t", [comment("7.0", "text")], ["7.0\t1\t1\t-1.0\n", "7\t2\t0\t0\n"], "toxicity"
    )
    assert read(tmp_path / "t")[0] == [Document("text", {"1": 1, "2": 0})]


def test_the_same_text_in_two_revisions_is_one_document(tmp_path):
    comments = [comment(1, "Same  text"), comment(2, "same textNEWLINE_TOKEN"), comment(3, "other")]
    verdicts = [score(1, 5, -1), score(2, 5, 0), score(2, 6, 0), score(3, 5, 0)]
    documents, left_out = read(write(tmp_path, comments, verdicts))
    assert documents == [Document("Same  text", {"5": 1, "6": 0}), Document("other", {"5": 0})]
    assert left_out.counts() == {"annotations by a worker who had labelled the same text": 1}


def test_damage_is_counted(tmp_path):
    comments = [comment(1, "one"), comment(2, "NEWLINE_TOKEN"), comment("x", "two"), "3\n"]
    verdicts = [
        score(1, 5, -1),
        score(2, 5, 0),
        score(9, 5, 0),
        score(1, 6, 7),
        "1\t6\t0.0\tnan\n",
        "1\t6\t0.0\t\n",
        "1\tw\t0.0\t1.0\n",
        "1\t7\t0.0",
    ]
    documents, left_out = read(write(tmp_path, comments, verdicts))
    assert documents == [Document("one", {"5": 1})]
    assert left_out.counts() == {
        "damaged rows of aggression_annotated_comments.tsv": 3,
        "annotations of unknown comments": 2,
        "damaged rows of aggression_annotations.tsv": 5,
    }
    assert "first: row 2: no revision" in left_out.lines()[0]
    assert "first: row 4: no number of a revision or a worker" in "\n".join(left_out.lines())
    assert "first: rev_id '2' in aggression_annotations.tsv" in "\n".join(left_out.lines())


def test_an_attack_is_zero_or_one(tmp_path):
    write(tmp_path, [comment(1, "one")], ["1\t5\t0.0\t0.0\t0.0\t0.0\t0.5\n"], "attack")
    with pytest.raises(DataError, match=r"annotations.tsv, row 1: .* no indicator, 0 or 1"):
        read(tmp_path)


def test_a_folder_of_two_data_sets_is_rejected(tmp_path):
    write(tmp_path, [comment(1, "one")], [score(1, 5, 0)])
    write(tmp_path, [comment(1, "one")], [score(1, 5, 0)], "attack")
    fails(run("detox", tmp_path), "several data sets (aggression, attack)")
