"""``fala-replace`` on ratings: error, rank correlation, and numbers used as classes."""

import json

import pytest

import rated
import tagged
from command_lines import fails, run
from public_data import write_rows, write_table
from word_releases import PERSONAL, PROBES, PUBLIC, SHARED, TEXTS


@pytest.fixture(scope="module")
def releases(tmp_path_factory):
    return rated.write_releases(tmp_path_factory.mktemp("rated"))


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A CSV of public stars, and those of a user."""
    public = rated.stars_of(PUBLIC, SHARED)
    rows = [(text, star, "", "public") for text, star in zip(PUBLIC, public, strict=True)]
    for split, texts in (("train", TEXTS), ("test", PROBES)):
        stars = rated.stars_of(texts, SHARED, PERSONAL)
        rows += [(text, star, "u0", split) for text, star in zip(texts, stars, strict=True)]
    path = tmp_path_factory.mktemp("data") / "stars.csv"
    return write_table(path, ["text", "stars", "user", "split"], rows)


def walk(pair, *arguments):
    return run("--old", pair["old"], "--new", pair["mid"], "--label", "stars", *arguments)


def test_ratings_report_rmse_and_rank_correlation(releases, unbridged, table):
    """With the releases' heads, and with heads fitted to the public rows."""
    done = walk(releases, "--data", table)
    assert done.exit_code == 0, done.stderr
    for part in (
        "RMSE",
        "rank correlation",
        "personal alone forward pass  FaLA",
        "lower is better",
    ):
        assert part in done.stdout
    assert "AUC" not in done.stdout and "classes" not in done.stdout
    fitted = json.loads(walk(unbridged, "--data", table, "--rating", 1, 5, "--json").stdout)
    (user,) = fitted["users"]
    error, correlation = user["rmse"], user["rank_correlation"]
    assert error["fala"] < error["new_global"] and error["instant"] < error["new_global"]
    assert correlation["fala"] > correlation["new_global"]
    assert "auc" not in user


def test_numbers_used_as_classes_are_reported(unbridged, tmp_path):
    rows = [
        {"user": user, "split": split, "text": text, "stars": 1 + at % 3}
        for user, split, texts in (
            (None, "public", PUBLIC[:90]), ("u0", "train", TEXTS[:30]), ("u0", "test", PROBES[:30]),
        )
        for at, text in enumerate(texts)
    ]  # fmt: skip
    path = write_rows(tmp_path / "rows.jsonl", rows)
    done = walk(unbridged, "--data", path)
    assert "3 numbers from 1 to 3 are used as classes" in done.stderr
    assert "--rating 1 3 uses them as ratings" in done.stderr
    table = tmp_path / "rows.tsv"
    lines = [
        f"{row['user'] or ''}\t{row['split']}\t{row['text']}\t{row['stars'] / 2}" for row in rows
    ]
    table.write_text("\n".join(["user\tsplit\ttext\tstars", *lines]))
    fails(walk(unbridged, "--data", table), "3 numbers from 0.5 to 1.5", "--rating 0.5 1.5")
    path.write_text(path.read_text() + json.dumps({**rows[0], "stars": 1.5}))
    fails(
        walk(unbridged, "--data", path), "line 151", "not 1.5; if these are ratings, use --rating"
    )


def test_ratings_reject_other_options_and_releases(releases, table, tmp_path):
    fails(walk(releases, "--data", table, "--rating", 1, 3), "must be a number from 1 to 3")
    fails(walk(releases, "--data", table, "--rating", 5, 1), "from a lower to a higher number")
    fails(walk(releases, "--rating", 1, 5), "--rating", "--data", status=2)
    tags = tagged.write_releases(tmp_path / "tags")
    fails(walk(tags, "--data", table), "devices for labels or ratings, not for tags")
