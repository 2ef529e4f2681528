import csv
import json

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from click.testing import CliRunner

from fala import Bundle
from fala_export.cli import main

VECTORS = "the 1 0 0.5\ngood 1 0 0\nbad 0 1 0\ngreat 0.9 0.1 0\nawful 0.1 0.9 0\n"


def run(*words):
    return CliRunner().invoke(main, [*map(str, words)], prog_name="fala-export")


@pytest.fixture
def posts(tmp_path):
    """A vendor's table, and word vectors beside it."""
    (tmp_path / "vectors.txt").write_text(VECTORS)
    path = tmp_path / "posts.csv"
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["Post", "offends", "annotator"])
        for user in range(8):
            for at in range(20):
                word = ["good", "bad", "great", "awful"][at % 4]
                writer.writerow([f"the {word} {user * 20 + at}", at % 2, f"u{user}"])
    return path


def test_a_table_becomes_a_recipe_and_the_recipe_a_release(posts, tmp_path):
    out, bundle = tmp_path / "recipe.toml", tmp_path / "release.fala"
    words = ("init", posts, "--from", tmp_path / "vectors.txt", "--label", "offends", "--out", out)
    result = run(*words, "--json")
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert summary["columns"] == "text = Post, label = offends, user = annotator"
    assert (summary["users"], summary["labels"]) == (8, "2: 0, 1")
    assert summary["split"].startswith("no splits: 2 of 8 users")
    result = run("release", out, "--out", bundle)
    assert result.exit_code == 0, result.output
    manifest = Bundle.open(bundle).manifest
    assert list(manifest.labels) == ["0", "1"]
    kept = out.read_bytes()
    result = run(*words)
    assert result.exit_code == 1 and "exists" in result.output
    assert out.read_bytes() == kept


def test_a_column_that_is_not_found_is_asked_for(posts, tmp_path):
    result = run("init", posts, "--out", tmp_path / "recipe.toml")
    assert result.exit_code == 1
    assert "no column 'label'" in result.output and "--label" in result.output
    assert not (tmp_path / "recipe.toml").exists()
