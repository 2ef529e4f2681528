import json

import msgspec
import pytest

from bundles import make_head, write_word_vector_release
from export_command import done, failed, fails, run, works
from fala import Bundle
from fala_export.recipe.file import read_recipe
from full_disk import files_of_at_most
from public_data import write_table
from vector_files import FIVE_WORDS

WORDS = ("good", "bad", "great", "awful")
HEADER = ("text", "label", "user")


@pytest.fixture
def table(tmp_path):
    """Write a vendor's table beside word vectors; returns the command for its recipe."""
    (tmp_path / "vectors.txt").write_text(FIVE_WORDS)

    def write(rows, header=HEADER):
        data = write_table(tmp_path / "posts.csv", header, rows)
        vectors, recipe = tmp_path / "vectors.txt", tmp_path / "recipe.toml"
        return ("init", data, "--from", vectors, "--out", recipe)

    return write


@pytest.fixture
def posts(table):
    """The command for a table whose column of labels has no usual name."""
    rows = [
        [f"the {WORDS[at % 4]} {user * 20 + at}", at % 2, f"u{user}"]
        for user in range(8)
        for at in range(20)
    ]
    return table(rows, ["Post", "offends", "annotator"])


def test_a_table_becomes_a_recipe_and_the_recipe_a_release(posts, tmp_path):
    """The recipe has counts of its file and tables of the options."""
    out, bundle = tmp_path / "recipe.toml", tmp_path / "old.fala"
    words = (*posts, "--label", "offends")
    summary = done(*words)
    assert summary["columns"] == "text = Post, label = offends, user = annotator"
    assert (summary["rows"], summary["texts"]) == (160, 160)
    assert (summary["users"], summary["labels"]) == (8, "2: 0 | 1")
    assert summary["split"].startswith("no splits: 2 of 8 users")
    plain = msgspec.toml.decode(out.read_bytes())
    assert {"bridge", "scales", "check", "sign", "publish"}.isdisjoint(plain)
    works("release", out, "--out", bundle)
    assert list(Bundle.open(bundle).manifest.labels) == [0, 1]
    content = out.read_bytes()
    assert "exists" in failed(*words)
    assert out.read_bytes() == content
    out.unlink()
    works(*words, "--old", bundle, "--publish", tmp_path / "REPO")
    tables = msgspec.toml.decode(out.read_bytes())
    assert tables["check"] == {"from": "old.fala", "minimum_gain": 0.0}
    assert tables["publish"] == {"repository": "REPO"}
    assert read_recipe(out).check.from_ == bundle
    out.write_text(out.read_text().replace("# [sign]\n# key", "[sign]\nkey"))
    assert read_recipe(out).sign.key == tmp_path / "vendor.pem"


def test_a_table_of_texts_and_labels_makes_a_release(table, tmp_path):
    """The output says that without users there are no scales and no check by users."""
    rows = [[f"the {WORDS[at % 4]} {at}", at % 2] for at in range(160)]
    words, out = table(rows, HEADER[:2]), tmp_path / "recipe.toml"
    assert "no row names a user: all rows are used for the release" in done(*words)["split"]
    told = works("release", out).stdout
    assert "no row names a user, so there are no scales from people and no check by users" in told
    out.unlink()
    works(*words, "--old", tmp_path / "posts.fala")
    recipe = out.read_text()
    assert "No user of these rows can be simulated.\n# [check]" in recipe
    assert "\n# [scales]" in recipe
    out.write_text(recipe.replace("# [check]\n# from", "[check]\nfrom"))
    told = fails(run("release", out), notices=True)
    assert "so there can be no check by users; remove [check]" in told


def test_a_recipe_skips_bad_rows_on_request(posts, tmp_path):
    data, out = tmp_path / "posts.csv", tmp_path / "recipe.toml"
    data.write_text(data.read_text() + "a post without an annotator,1\n,0,u1\n")
    words = (*posts, "--label", "offends")
    assert "posts.csv, line 162: has 2 cells, but the header has 3" in failed(*words)
    summary = works(*words, "--skip-bad-rows", "--json")
    assert "posts.csv: 2 bad rows left out, lines 162, 163; the first: has 2" in summary.stderr
    assert json.loads(summary.stdout)["rows"] == 160
    assert read_recipe(out).columns.skip_bad_rows


@pytest.mark.parametrize("name", ["adapter", "bridge", "init", "scales", "train"])
def test_every_command_that_reads_rows_skips_bad_ones_on_request(name):
    assert "--skip-bad-rows" in works(name, "--help").stdout


def test_a_column_that_is_not_recognized_must_be_named(posts, tmp_path):
    message = failed(*posts)
    assert "no column 'label'" in message and "--label" in message
    assert not (tmp_path / "recipe.toml").exists()


def test_numeric_classes_have_a_remark_about_ratings(table, tmp_path):
    rows = [[f"text {at}", 1 + at % 5, f"u{at % 4}"] for at in range(80)]
    assert "--rating 1 5 uses them as ratings" in works(*table(rows)).output
    assert "# remark: labels: 5 numbers" in (tmp_path / "recipe.toml").read_text()


def test_tables_that_require_more_rows_are_comments(table, tmp_path):
    """Scales need 30 rows of an annotator; a bridge needs texts."""
    old, out = tmp_path / "old.fala", tmp_path / "recipe.toml"
    write_word_vector_release(old, make_head(labels=(0, 1, 2), dimension=80), dimension=80)
    rows = [[f"w1 {at} {user}", at % 3, f"u{user}"] for user in range(28) for at in range(20)]
    for count, missing in ((560, {"scales"}), (120, {"scales", "bridge"})):
        out.unlink(missing_ok=True)
        works(*table(rows[:count]), "--old", old)
        tables = msgspec.toml.decode(out.read_bytes())
        assert {"scales", "bridge", "check"} - tables.keys() == missing
    assert "It needs 103 public texts; there are" in out.read_text()


def test_a_recipe_for_matches_has_scales(table, tmp_path):
    rows = []
    for user in range(27):
        for at in range(45):
            history = json.dumps([f"the {WORDS[user % 4]} {at % 3}"])
            label = int(user % 2 == at % 2) ^ (at % 7 == 0)
            rows.append([history, f"the {WORDS[at % 4]} {user} {at}", label, f"u{user}"])
    words = table(rows, ["history", "candidate", "label", "user"])
    old, out = tmp_path / "old.fala", tmp_path / "recipe.toml"
    write_word_vector_release(old, make_head("matching", labels=(0, 1)))
    works(*words, "--old", old)
    assert msgspec.toml.decode(out.read_bytes())["scales"] == {}
    out.write_text(out.read_text().replace("[check]", "[check]\nusers = 1").replace("0.0", "-1"))
    made = works("release", out, "--no-lexical")
    assert "scales (prior variances) of a device's fit" in made.output
    assert "simulating the devices of 1 of 6 held-out annotators, drawn at random" in made.stderr


def test_control_characters_of_labels_reach_no_terminal_and_no_release(table, tmp_path):
    rows = [[f"text {at}", ("fine", "b\x1b[2Jad\x9b")[at % 2], f"u{at % 5}"] for at in range(80)]
    printed = works(*table(rows)).output
    assert "b\\x1b[2Jad\\x9b" in printed and "no release can have it" in printed
    assert all(sign.isprintable() or sign == "\n" for sign in printed)
    message = failed("release", tmp_path / "recipe.toml")
    assert (
        r"the label must not be empty, contain control" in message
        and r"'b\x1b[2Jad\x9b'" in message
    )


def test_a_failing_disk_leaves_no_part_of_a_recipe(posts, tmp_path):
    before = sorted(file.name for file in tmp_path.iterdir())
    words = (*posts, "--label", "offends")
    with files_of_at_most(100):
        assert "recipe.toml: cannot be written: File too large" in failed(*words)
    assert sorted(file.name for file in tmp_path.iterdir()) == before
    (tmp_path / "recipe.toml").symlink_to(tmp_path / "elsewhere.toml")
    assert "exists" in failed(*words)


def test_rows_that_cannot_be_read_again_are_refused(tmp_path):
    assert "is not a regular file" in failed("init", "-", "--out", tmp_path / "recipe.toml")


@pytest.mark.parametrize("kind", ["folder", "graph.onnx", "words.fala", "vectors.txt"])
def test_a_recipe_begins_with_what_backbone_and_recipes_take(posts, tmp_path, kind):
    source = tmp_path / kind
    if kind == "folder":
        source.mkdir()
    elif kind == "words.fala":
        works("word-vectors", tmp_path / "vectors.txt", "--out", source)
    elif kind == "graph.onnx":
        source.write_bytes(b"")
    works(*posts, "--label", "offends", "--from", source)
    title = "word-vectors" if kind == "vectors.txt" else "backbone"
    tables = msgspec.toml.decode((tmp_path / "recipe.toml").read_bytes())
    assert tables[title] == {"source": kind}
