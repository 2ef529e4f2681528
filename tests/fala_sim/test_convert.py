import json

import pytest

from conversions import check, run
from fala.base.errors import DataError
from fala_export.rows.data_set import gather_rows
from fala_export.rows.user_rows import read_rows
from fala_sim.data.annotators import Document, busiest_annotators, convert_documents
from fala_sim.data.formats.lewidi import parse_documents, read_parts
from fala_sim.data.left_out import LeftOut
from fala_sim.data.location import find_location
from sim_command import fails


def entry(text, **labels):
    return {
        "text": text,
        "annotation task": "offensiveness detection",
        "annotations": ",".join(str(label) for label in labels.values()),
        "annotators": ",".join(labels),
        "split": "train",
    }


def write(folder, name, *entries):
    content = {str(number): value for number, value in enumerate(entries, start=1)}
    (folder / name).write_text(json.dumps(content), encoding="utf-8")


def documents(count, *annotators):
    return [
        Document(f"text {n}", {name: (n + i) % 2 for i, name in enumerate(annotators)})
        for n in range(count)
    ]


def divide(docs, users=2, seed=0, **options):
    return convert_documents(docs, users=busiest_annotators(docs)[:users], seed=seed, **options)


def test_the_three_files_are_pooled(tmp_path):
    write(tmp_path, "X_train.json", entry("one", Ann1=0, Ann2=1))
    write(tmp_path, "X_dev.json", entry("two", Ann1=1))
    write(tmp_path, "X_test.json", entry("three", Ann3=1))
    write(tmp_path, "other.json", entry("not read", Ann3=1))
    assert parse_documents(read_parts(tmp_path)) == [
        Document("one", {"Ann1": 0, "Ann2": 1}),
        Document("two", {"Ann1": 1}),
        Document("three", {"Ann3": 1}),
    ]


def test_a_repeated_text_is_one_document_with_its_first_label(tmp_path):
    write(tmp_path, "X_train.json", entry("Same  text", a=0, b=1), entry("other", a=0))
    write(tmp_path, "X_dev.json", entry("same text ", a=1, c=1))
    parsed = parse_documents(read_parts(tmp_path))
    assert parsed == [Document("Same  text", {"a": 0, "b": 1, "c": 1}), Document("other", {"a": 0})]
    content = json.dumps({"1": {"text": "x", "annotations": "1,0", "annotators": "a,a"}})
    assert parse_documents({"f": content.encode()}) == [Document("x", {"a": 1})]


def in_language(code, post):
    pair = {"text": {"post": post, "reply": "!"}, "annotations": {"a": "0", "b": "1"}}
    return {**pair, "lang": code}


@pytest.mark.parametrize(
    ("options", "post", "name"),
    [({}, "How nice.", "English"), ({"language": "ar"}, "ما أجمله", "Arabic")],
)
def test_a_post_and_its_reply_of_one_language_are_a_document_and_others_are_counted(
    options, post, name
):
    entries = {"0": in_language("en", "How nice."), "1": in_language("ar", "ما أجمله")}
    left_out = LeftOut()
    content = {"MP_dev.json": json.dumps(entries).encode()}
    parsed = parse_documents(content, left_out, **options)
    assert parsed == [Document(f"{post}\n\n!", {"a": 0, "b": 1})]
    assert left_out.counts() == {f"documents in another language than {name}": 1}


def test_a_set_of_each_language_is_read_from_one_folder(tmp_path):
    folder = tmp_path / "multipico"
    folder.mkdir()
    write(folder, "MP_dev.json", *(in_language(code, f"post {code}") for code in ("de", "es")))
    for code in ("de", "es"):
        location = find_location(f"multipico-{code}", tmp_path)
        opened = location.format.open(location.path, LeftOut())
        assert opened.people == ["a", "b"]
        assert sum(opened.left_out.counts().values()) == 1


def tagged(text, tags, **labels):
    return {**entry(text, **labels), "other_info": {"other annotations": tags}}


def test_an_annotators_tags_are_the_tasks_answered_with_yes(tmp_path):
    tags = {"sport detection": "1,No", "food": "1,0"}
    first, second = tagged("one", tags, a=0, b=1), tagged("two", tags, a=1, b=0)
    write(tmp_path, "X_train.json", first, second)
    parsed = parse_documents(read_parts(tmp_path), tags=True)
    assert parsed == [
        Document("one", {"a": ("sport", "food"), "b": ("offensiveness",)}),
        Document("two", {"a": ("offensiveness", "sport", "food"), "b": ()}),
    ]


def test_rows_of_tags_are_written_and_counted(tmp_path):
    tags = {"sport detection": "1,0,1"}
    rows = [tagged(f"text {n}", tags, u=n % 2, v=0, w=(n + 1) % 2) for n in range(30)]
    write(tmp_path, "X_train.json", *rows)
    done = run("lewidi-tags", tmp_path, "--users", 1)
    labels = [json.loads(line)["label"] for line in done.stdout.splitlines()]
    assert labels.count([]) == 21
    kinds = {tuple(label) for label in labels}
    assert kinds == {(), ("sport",), ("offensiveness", "sport")}
    assert "u: 30 examples, 30.0 % test, 50.0 % offensiveness, 100.0 % sport" in done.stderr


def test_users_are_those_with_most_labels_and_ties_are_sorted_by_name():
    docs = [
        *documents(20, "busy", "tie2", "tie1", "small"),
        *[Document(f"more {n}", {"busy": n % 2, "tie1": 0, "tie2": 1}) for n in range(10)],
    ]
    by_user = check(divide(docs))
    assert list(by_user) == [None, "busy", "tie1"]
    assert len(by_user["busy"]) == 30


def test_public_rows_are_all_labels_of_the_others_on_documents_that_no_user_is_tested_on():
    docs = [*documents(40, "u", "v", "w"), *[Document(f"x {n}", {"x": 1}) for n in range(5)]]
    by_user = check(divide(docs))
    test = {row.judged for row in by_user["u"] if row.split == "test"}
    expected = [
        (document.text, label)
        for document in docs
        for annotator, label in document.labels.items()
        if annotator in ("w", "x") and document.text not in test
    ]
    assert [(row.judged, row.label) for row in by_user[None]] == expected
    assert test == {row.judged for row in by_user["v"] if row.split == "test"}
    assert len(test) == 12


def test_public_rows_can_be_a_draw_and_the_seed_determines_it_and_the_division():
    docs = documents(40, "u", "v", "w", "x")
    every = divide(docs)
    drawn = divide(docs, public=12)
    public = check(drawn)[None]
    assert len(public) == 12
    assert {row.user for row in check(every)[None]} == {"w", "x"}  # the public has names
    assert [row for row in check(every)[None] if row in public] == public  # in the same order
    ours, theirs = ([row for row in part.rows if row.split != "public"] for part in (drawn, every))
    assert ours == theirs
    assert drawn.left_out.counts()["public labels beyond --public"] == 2 * 28 - 12
    assert divide(docs, public=12).rows == drawn.rows
    other = divide(docs, seed=1, public=12).rows
    assert {row.judged for row in other if row.split == "test"} != {
        row.judged for row in drawn.rows if row.split == "test"
    }


@pytest.mark.parametrize(
    ("docs", "users", "words"),
    [
        (documents(20, "u", "v", "w"), 3, "0 public rows beside 3 users"),
        (documents(1, "u", "v"), 1, r"'u' labelled too few documents \(1\)"),
        ([Document(f"text {n}", {"u": n % 2, "v": 0}) for n in range(9)], 1, "label 1"),
    ],
)
def test_too_few_annotators_or_documents(docs, users, words):
    with pytest.raises(DataError, match=words):
        divide(docs, users)


GOOD = entry("a text", a=0, b=1)


@pytest.mark.parametrize(
    ("content", "words", "kind"),
    [(content, words, "lewidi") for content, words in [
        (b"{", "X_train.json is not JSON"),
        (b"\xff", "X_train.json is not JSON in UTF-8"),
        (b"[]", "expected an object of documents"),
        ({"7": []}, "X_train.json, document '7': expected an object"),
        ({"7": {**GOOD, "text": 3}}, "document '7': expected text to be a string"),
        ({"7": {**GOOD, "text": "\ud800"}}, "surrogate"),
        ({"7": {**GOOD, "text": {"post": "p"}}}, "document '7': expected reply to be a string"),
        ({"7": {**GOOD, "annotations": {"a": "yes"}}}, "that is neither 0 nor 1"),
        ({"7": {**GOOD, "annotators": " "}}, "expected annotators to be a string"),
        ({"7": {**GOOD, "annotators": "a,b,c"}}, "2 annotations by 3 annotators"),
        ({"7": {**GOOD, "annotators": "a,"}}, "without a name"),
        ({"7": {**GOOD, "annotations": "0,2"}}, "that is neither 0 nor 1"),
    ]] + [(content, words, "lewidi-tags") for content, words in [
        ({"7": GOOD}, "other annotations: there are no tags"),
        ({"7": tagged("a text", {"sport": "1"}, a=0, b=1)}, "1 annotation by 2 annotators"),
        ({"7": tagged("a text", {"sport": "1,2"}, a=0, b=1)}, "that is neither 0 nor 1"),
    ]],
)  # fmt: skip
def test_damaged_files_end_in_one_line(tmp_path, content, words, kind):
    raw = content if isinstance(content, bytes) else json.dumps(content).encode()
    (tmp_path / "X_train.json").write_bytes(raw)
    out = tmp_path / "out.jsonl"
    fails(run(kind, tmp_path, "--out", out), words)
    assert not out.exists()


def test_a_folder_of_two_data_sets_is_rejected(tmp_path):
    write(tmp_path, "X_train.json", GOOD)
    write(tmp_path, "Y_train.json", GOOD)
    with pytest.raises(DataError, match=r"2 data sets in .* \(X, Y\)"):
        read_parts(tmp_path)


def test_the_command_writes_rows_to_its_output_or_a_file_and_counts_as_json(tmp_path):
    rows = [entry(f"text {n} é", u=n % 2, v=0, w=(n + 1) % 2) for n in range(30)]
    write(tmp_path, "X_train.json", *rows)
    piped = run("lewidi", tmp_path, "--users", 2)
    assert "u: 30 examples, 30.0 % test, 50.0 % label 1" in piped.stderr
    assert list(gather_rows(read_rows(piped.stdout_bytes.splitlines()), "").users) == ["u", "v"]
    out = tmp_path / "out.jsonl"
    saved = run("lewidi", tmp_path, "--users", 2, "--out", out, "--json")
    assert (saved.exit_code, saved.stderr) == (0, "")
    assert out.read_bytes() == piped.stdout_bytes
    counts = json.loads(saved.stdout)
    assert counts["users"]["u"]["splits"] == {"test": 9, "train": 21}
    assert counts["left_out"] == {"public labels of documents that a user is tested on": 9}
    fails(run("lewidi", tmp_path, "--json"), "needs --out FILE", status=2)


def test_users_may_be_of_one_half(tmp_path):
    rows = [entry(f"text {n}", a=n % 2, b=0, c=1, d=n % 2, e=0, f=1) for n in range(30)]
    write(tmp_path, "X_train.json", *rows)
    users = {
        half: list(gather_rows(read_rows(done.stdout_bytes.splitlines()), "").users)
        for half in ("test", "validation")
        if (done := run("lewidi", tmp_path, "--users", 2, "--half", half))
    }
    assert users == {"test": ["a", "c"], "validation": ["b", "d"]}
    fails(run("lewidi", tmp_path, "--users", 4, "--half", "test"), "3 people can be users at most")
    fails(run("lewidi", tmp_path, "--users", 7), "6 people can be users at most, not 7")
