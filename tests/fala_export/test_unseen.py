from collections import Counter

import pytest

from bundles import make_head, write_word_vector_release
from export_command import done, works
from fala import Bundle
from fala_export.base.errors import ExportError
from fala_export.fit import scales
from fala_export.people import draw
from fala_export.people.division import divide, documents_of, load_public_rows
from fala_export.training.unseen import unseen_rows
from public_data import write_rows
from public_people import verdicts

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def base(folder):
    return write_word_vector_release(folder / "base.fala", make_head())


@pytest.fixture(scope="module")
def rows(folder, base):
    """Rows whose labels word vectors can learn, and a head on the base's embeddings cannot."""
    people = verdicts(base, people=40, rows_each=60)
    learnable = [{**row, "label": int(row["text"].split()[1] in "good awful")} for row in people]
    return write_rows(folder / "rows.jsonl", learnable)


@pytest.fixture(scope="module")
def trained(folder, base, rows):
    out = folder / "trained.fala"
    files = ("--data", rows, "--work", folder / "work", "--out", out)
    settings = ("--epochs", 3, "--learning-rate", 1e-2, "--no-lexical")
    works("train", base.path, *files, *settings, "--seed", 3)
    return Bundle.open(out)


def test_word_vectors_are_trained_and_keep_their_precision(base, trained):
    assert base.manifest.precision == trained.manifest.precision == "float16"
    assert trained.head().labels == (0, 1)
    training = trained.manifest.details["training"]
    losses = list(training["history"]["validation_loss"].values())
    assert training["chosen"] == "trained" and min(losses) < losses[0]
    frozen, best = training["candidates"]
    assert best["loss"] < frozen["loss"]


def test_unseen_rows_exclude_training_documents(trained, rows):
    public = load_public_rows(rows)
    division = divide(public, 3, validation=True)
    training = trained.manifest.details["training"]
    assert training["data"]["training"]["rows"] == len(division.training)
    unseen = unseen_rows(trained, public, None)
    assert documents_of(unseen).isdisjoint(documents_of(division.training))
    assert len(unseen) >= len(division.validation) + len(division.held_out) > 0


def test_training_documents_are_removed_from_other_rows(folder, base, trained, rows):
    others = load_public_rows(
        write_rows(folder / "others.jsonl", verdicts(base, people=20, rows_each=50))
    )
    assert unseen_rows(trained, others, None) is others
    trained_on = load_public_rows(rows)
    unseen = unseen_rows(trained, others, trained_on)
    expected = documents_of(unseen_rows(trained, trained_on, None))
    assert documents_of(unseen) == expected
    assert unseen_rows(base, others, trained_on) is others  # no backbone was trained
    with pytest.raises(ExportError, match=r"--trained-on are not those that .*--data"):
        unseen_rows(trained, others, others)


def test_scales_are_chosen_on_unseen_rows(folder, trained, rows, monkeypatch):
    monkeypatch.setattr(draw, "LEAST_ROWS", 10)
    monkeypatch.setattr(scales, "LEAST_ROWS", 10)
    monkeypatch.setattr(scales, "LEAST_SCORED", 1)
    monkeypatch.setattr(scales, "NUMBERS_OF_LABELS", (5,))
    out = folder / "with scales.fala"
    summary = done("scales", "--release", trained.path, "--data", rows, "--out", out)
    public = load_public_rows(rows)
    unseen = unseen_rows(trained, public, None)
    counts = Counter(row.user for row in unseen)
    enough = sum(count >= 10 for count in counts.values())
    assert summary["scales_from"]["of"] == enough
    assert unseen_rows(trained, public, public) == unseen
