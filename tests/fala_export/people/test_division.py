import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fala import DataError, Match
from fala_export.people.division import divide, documents_of, load_public_rows
from fala_export.rows.data_set import gather_public
from fala_export.rows.user_rows import Row
from public_data import write_rows


def row(user, example, label=0, split="public"):
    return Row(user, split, example, label, 0)


@st.composite
def public(draw):
    """Rows of users with a few documents each from a common set."""
    stock = draw(st.integers(30, 80))
    rows = []
    for user in range(draw(st.integers(15, 30))):
        for number in draw(st.sets(st.integers(0, stock), min_size=1, max_size=5)):
            has_user = draw(st.booleans())
            rows.append(row(f"u{user}" if has_user else None, f"text {number}", number % 2))
    return rows


@given(public(), st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_no_document_and_no_user_is_in_two_parts(rows, seed):
    try:
        division = divide(rows, seed, validation=True)
    except DataError:
        return
    parts = (division.training, division.validation, division.held_out)
    total = len(documents_of(rows))
    for position, part in enumerate(parts):
        others = parts[:position] + parts[position + 1 :]
        assert all(documents_of(part).isdisjoint(documents_of(other)) for other in others)
        if division.by == "users":
            users = {row.user for row in part} - {None}
            assert all(users.isdisjoint(row.user for row in other) for other in others)
    assert all(0.1 * total <= len(documents_of(part)) <= 0.15 * total for part in parts[1:])
    assert divide(rows, seed, validation=True) == division


def test_all_rows_on_a_held_out_document_of_unknown_users_are_held_out():
    rows = [row(None, f"text {n}", label) for n in range(40) for label in (0, 1, 1)]
    division = divide(rows, 0, validation=True)
    assert division.by == "documents"
    assert (len(division.held_out), len(division.validation)) == (3 * 4, 3 * 4)
    assert len(division.training) == 3 * 32


def test_annotators_who_all_labelled_everything_are_divided_by_documents():
    rows = [row(f"u{user}", f"text {n}", n % 2) for user in range(4) for n in range(40)]
    division = divide(rows, 0, validation=True)
    assert division.by == "documents"
    assert len(documents_of(division.training)) == 32


def test_held_out_candidates_are_in_no_history():
    rows = [
        row(f"u{user}", Match((f"film {user + 1}", f"film {user + 2}"), f"film {user}"), user % 2)
        for user in range(40)
    ]
    division = divide(rows, 0, validation=True)
    validation, held_out = documents_of(division.validation), documents_of(division.held_out)
    texts = {text for row in division.training for text in row.example.history}
    assert texts.isdisjoint(validation | held_out)
    assert held_out.isdisjoint(t for row in division.validation for t in row.example.history)
    assert sum(len(row.example.history) for row in division.held_out) == 2 * len(division.held_out)


def test_too_few_rows_are_rejected_for_training_and_used_without():
    rows = [row(f"u{n}", f"text {n}", n % 2) for n in range(4)]
    with pytest.raises(DataError, match="4 public rows on 4 documents"):
        divide(rows, 0, validation=True)
    division = divide(rows, 0, validation=False)
    assert (division.training, division.held_out, division.by) == (rows, [], "nothing")


def test_divide_rejects_training_rows_with_one_label():
    rows = [row(f"u{n}", f"text {n}", 0) for n in range(40)] + [row("u0", "text 0", 1)]
    seeds = [seed for seed in range(40) if _fits(rows, seed)]
    assert 0 < len(seeds) < 40
    for seed in seeds:
        assert {row.label for row in divide(rows, seed, validation=True).training} == {0, 1}


def _fits(rows, seed):
    try:
        return bool(divide(rows, seed, validation=True))
    except DataError:
        return False


def test_only_public_rows_are_read(tmp_path):
    rows = [
        {"user": None, "split": "public", "text": "a", "label": 10},
        {"user": "x", "split": "public", "text": "b", "label": 2},
        {"user": "y", "split": "train", "text": "c", "label": 3},
    ]
    rows = load_public_rows(write_rows(tmp_path / "rows.jsonl", rows))
    assert (rows.task, rows.labels) == ("classification", (2, 10))
    assert [row.example for row in rows] == ["a", "b"]


def test_the_digest_is_of_the_public_rows_alone():
    one = [row("u", "a", 0), row("u", "b", 1)]
    digest = gather_public(one).digest
    assert gather_public([*one, row("v", "c", 1, "train")]).digest == digest
    for other in ([one[1], one[0]], [row("v", "a", 0), one[1]], [row("u", "a", 1), row("u", "b")]):
        assert gather_public(other).digest != digest


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"user": "x", "split": "train", "text": "a", "label": 1}], "no public rows"),
        ([{"split": "public", "text": "a", "label": 1}] * 2, "label 1"),
        (
            [
                {"split": "public", "history": [], "candidate": "a", "label": label}
                for label in (0, 1, 2)
            ],
            "two labels",
        ),
    ],
)
def test_rows_without_two_labels_or_users_are_rejected(tmp_path, rows, message):
    with pytest.raises(DataError, match=message):
        load_public_rows(write_rows(tmp_path / "rows.jsonl", rows))
