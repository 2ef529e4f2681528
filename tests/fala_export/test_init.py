import json

import msgspec
import pytest

from export_command import done, failed, works
from fala import Bundle
from fala_export.release.recipe import read_recipe
from public_data import write_table
from vector_files import FIVE_WORDS


@pytest.fixture
def posts(tmp_path):
    """A vendor's table, and word vectors beside it."""
    (tmp_path / "vectors.txt").write_text(FIVE_WORDS)
    words = ["good", "bad", "great", "awful"]
    rows = [
        [f"the {words[at % 4]} {user * 20 + at}", at % 2, f"u{user}"]
        for user in range(8)
        for at in range(20)
    ]
    return write_table(tmp_path / "posts.csv", ["Post", "offends", "annotator"], rows)


def test_a_table_becomes_a_recipe_and_the_recipe_a_release(posts, tmp_path):
    out, bundle = tmp_path / "recipe.toml", tmp_path / "release.fala"
    words = ("init", posts, "--from", tmp_path / "vectors.txt", "--label", "offends", "--out", out)
    summary = done(*words)
    assert summary["columns"] == "text = Post, label = offends, user = annotator"
    assert (summary["users"], summary["labels"]) == (8, "2: 0 | 1")
    assert summary["split"].startswith("no splits: 2 of 8 users")
    works("release", out, "--out", bundle)
    manifest = Bundle.open(bundle).manifest
    assert list(manifest.labels) == ["0", "1"]
    content = out.read_bytes()
    assert "exists" in failed(*words)
    assert out.read_bytes() == content


def test_a_column_that_is_not_recognized_must_be_named(posts, tmp_path):
    message = failed("init", posts, "--out", tmp_path / "recipe.toml")
    assert "no column 'label'" in message and "--label" in message
    assert not (tmp_path / "recipe.toml").exists()


@pytest.mark.parametrize(
    ("header", "label"),
    [
        (["text", "is_spam", "user"], "is_spam"),
        (["text", "Hateful", "user"], "Hateful"),
        (["text", "is_spam", "user", "toxic"], None),  # which of them?
        (["text", "is_spam", "user", "label"], "label"),
    ],
)
def test_a_column_of_two_values_is_the_label_if_no_other_column_fits(tmp_path, header, label):
    rows = [
        [f"text {user} {at}", at % 2, f"u{user}", at % 2][: len(header)]
        for user in range(8)
        for at in range(20)
    ]
    write_table(tmp_path / "posts.csv", header, rows)
    words = ("init", tmp_path / "posts.csv", "--out", tmp_path / "recipe.toml")
    if label is None:
        assert "--label" in failed(*words)
    else:
        assert f"label = {label}," in done(*words)["columns"]


def test_a_column_of_many_values_is_not_the_label(tmp_path):
    rows = [[f"text {at}", at, f"u{at % 4}"] for at in range(80)]
    write_table(tmp_path / "posts.csv", ["text", "is_spam", "user"], rows)
    assert "--label" in failed("init", tmp_path / "posts.csv", "--out", tmp_path / "recipe.toml")


def test_numeric_classes_have_a_remark_about_ratings(tmp_path):
    rows = [[f"text {at}", 1 + at % 5, f"u{at % 4}"] for at in range(80)]
    words = ("init", tmp_path / "films.csv", "--out", tmp_path / "recipe.toml")
    write_table(tmp_path / "films.csv", ["text", "label", "user"], rows)
    assert "--rating 1 5 uses them as ratings" in works(*words).output
    assert "# remark: labels: 5 numbers" in (tmp_path / "recipe.toml").read_text()
    decimals = [[text, f"{number},5", user] for text, number, user in rows]
    write_table(tmp_path / "films.csv", ["text", "stars", "user"], decimals)
    assert "decimals have a point" in failed(*words)


def test_tables_that_require_more_rows_are_comments(tmp_path):
    """Scales need more rows of an annotator than a prior does; a bridge needs texts."""
    vectors, out = tmp_path / "vectors.txt", tmp_path / "recipe.toml"
    numbers = {at: " ".join(str((number * at) % 7) for number in range(80)) for at in (1, 2)}
    vectors.write_text("".join(f"w{at} {vector}\n" for at, vector in numbers.items()))
    rows = [[f"w1 {at} {user}", at % 3, f"u{user}"] for user in range(28) for at in range(20)]
    words = ("init", tmp_path / "posts.csv", "--from", vectors, "--out", out)
    write_table(tmp_path / "posts.csv", ["text", "label", "user"], rows)
    works(*words)
    works("release", out, "--out", tmp_path / "old.fala")
    for count, missing in ((560, {"prior"}), (140, {"prior", "bridge"})):
        write_table(tmp_path / "posts.csv", ["text", "label", "user"], rows[:count])
        out.unlink()
        works(*words, "--old", tmp_path / "old.fala")
        tables = msgspec.toml.decode(out.read_bytes())
        assert {"prior", "bridge", "check"} - tables.keys() == missing
    assert "It takes 125 public texts; there are" in out.read_text()


def test_a_recipe_for_matches_has_scales_and_no_prior(tmp_path):
    """A matcher with words has a block for the candidate alone, which no prior supports."""
    (tmp_path / "vectors.txt").write_text(FIVE_WORDS)
    words, rows = ["good", "bad", "great", "awful"], []
    for user in range(27):
        for at in range(45):
            history = json.dumps([f"the {words[user % 4]} {at % 3}"])
            label = int(words[user % 2] in {words[at % 2]}) ^ (at % 7 == 0)
            rows.append([history, f"the {words[at % 4]} {user} {at}", label, f"u{user}"])
    write_table(tmp_path / "m.csv", ["history", "candidate", "label", "user"], rows)
    first, second = tmp_path / "first.toml", tmp_path / "second.toml"
    words = ("init", tmp_path / "m.csv", "--from", tmp_path / "vectors.txt")
    works(*words, "--out", first)
    works("release", first)
    works(*words, "--old", tmp_path / "first.fala", "--out", second)
    assert msgspec.toml.decode(second.read_bytes())["prior"] == {"scales_only": True}
    second.write_text(
        second.read_text().replace("[check]", "[check]\nusers = 1").replace("0.0", "-1")
    )
    assert "scales of a device's fit" in works("release", second).output


def test_a_missing_source_is_named(posts, tmp_path):
    words = ("init", posts, "--label", "offends", "--from", tmp_path / "no model")
    assert "does not exist" in failed(*words, status=2)


def test_a_recipe_has_counts_of_its_file_and_options_of_the_bundle(tmp_path):
    rows = [["", at % 2, f"u{user}"] for user in range(28) for at in range(20)]
    words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    for number, row in enumerate(rows):
        row[0] = " ".join(words[int(digit)] for digit in str(number))
    rows += [["SEVEN eight @you", 1, "u0"], ["seven,  eight 7", 0, "u1"]]  # near copies
    write_table(tmp_path / "posts.csv", ["text", "label", "user"], rows)
    (tmp_path / "vectors.txt").write_text(FIVE_WORDS)
    out = tmp_path / "recipe.toml"
    words = ("init", tmp_path / "posts.csv", "--from", tmp_path / "vectors.txt", "--out", out)
    summary = done(*words)
    assert (summary["rows"], summary["texts"], summary["near_copies"]) == (562, 562, 2)
    plain = msgspec.toml.decode(out.read_bytes())
    assert {"bridge", "prior", "check", "sign", "publish"}.isdisjoint(plain)
    works("release", out, "--out", tmp_path / "old.fala")
    out.unlink()
    works(*words, "--old", tmp_path / "old.fala", "--publish", tmp_path / "REPO")
    tables = msgspec.toml.decode(out.read_bytes())
    assert tables["bridge"] == {"from": ["old.fala"]}
    assert tables["check"] == {"from": "old.fala", "minimum_gain": 0.0}
    assert tables["prior"] == {"scales_only": False}
    assert tables["publish"] == {"repository": "REPO"}
    assert read_recipe(out).check.from_ == tmp_path / "old.fala"
    uncommented = out.read_text().replace("# [sign]\n# key", "[sign]\nkey")
    out.write_text(uncommented)
    assert read_recipe(out).sign.key == tmp_path / "vendor.pem"
