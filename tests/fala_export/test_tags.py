"""Tags at the vendor: from a table with several labels a row to a device that decides sets."""

import pytest

from export_command import done, failed, works
from fala import Bundle, Device
from fala.model.links import TAGS
from fala_export.base.errors import RowError
from fala_export.rows.columns import Columns
from fala_export.rows.row_files import file_rows
from public_data import write_table
from vector_files import write_old_and_new

pytestmark = pytest.mark.slow

WORDS = {"goal": ["sport"], "budget": ["money"], "transfer": ["sport", "money"], "rain": []}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The same rows with a column of names and with a column per tag, and two vector files."""
    folder = tmp_path_factory.mktemp("tags")
    write_old_and_new(folder, WORDS, "news 0 0 0.5")
    by_name, by_column = [], []
    for user in range(32):
        for at in range(32):
            word = [*WORDS][at % 4]
            text = f"{word} {[*WORDS][(at + user) % 4]} news {user * 32 + at}"
            tags = set(WORDS[word])
            if user % 3 == 0 and at % 8 == 3:  # a third of the users see money in rain
                tags.add("money")
            by_name.append([text, " | ".join(sorted(tags)), f"u{user}"])
            by_column.append([text, int("sport" in tags), int("money" in tags), f"u{user}"])
    write_table(folder / "names.csv", ["text", "label", "user"], by_name)
    write_table(folder / "columns.csv", ["text", "sport", "money", "user"], by_column)
    return folder


def test_a_column_of_names_and_a_column_per_tag_are_the_same_rows(folder, tmp_path):
    first = file_rows(folder / "names.csv", link=TAGS)
    second = file_rows(folder / "columns.csv", Columns(labels="sport, money"), link=TAGS)
    assert [row.label for row in first] == [row.label for row in second]
    assert frozenset() in {row.label for row in first}
    wrong = write_table(tmp_path / "wrong.csv", ["text", "sport", "money"], [["goal", 2, 0]])
    with pytest.raises(RowError, match="line 2: a column of a tag has 0 or 1; sport has '2'"):
        file_rows(wrong, Columns(labels="sport, money"), link=TAGS)


def test_devices_of_a_release_of_tags_decide_sets(folder, tmp_path):
    old, new = folder / "old.toml", folder / "new.toml"
    works("init", folder / "names.csv", "--tags", "--from", folder / "old.txt", "--out", old)
    works("release", old)
    works("init", folder / "columns.csv", "--tags", "--labels", "sport,money", "--from",
        folder / "new.txt", "--old", folder / "names.fala", "--out", new)  # fmt: skip
    assert "tags = true" in new.read_text() and "[scales]" in new.read_text()
    new.write_text(new.read_text().replace("[check]", "[check]\nusers = 2"))
    summary = done("release", new)
    bundle = Bundle.open(folder / "columns.fala")
    assert bundle.head().link == TAGS and bundle.head().labels == ("money", "sport")
    assert summary["check"]["auc"]["fala"] > 0.9 and len(bundle.scales[0].numbers) == 4
    assert summary["training"]["figures"]["frozen"]["pooled"]["auc"] > 0.9
    with Device.create(tmp_path / "device", folder / "names.fala") as device:
        device.learn(["goal news", "budget news", "rain news"], [{"sport"}, {"money"}, set()])
        device.replace(folder / "columns.fala")
        assert device.predict(["transfer transfer news"]) == [{"sport", "money"}]


def test_train_and_scales_accept_tags(folder, tmp_path):
    words, out = tmp_path / "words.fala", tmp_path / "out.fala"
    works("word-vectors", folder / "new.txt", "--out", words)
    data = ("--data", folder / "columns.csv", "--labels", "sport,money")
    train = ("train", words, *data, "--out", out)
    assert "several columns" in failed(*train, "--frozen")
    works(*train, "--frozen", "--tags")
    works("scales", "--release", out, *data)
    assert "not for tags money, sport" in failed(*train, "--tags", "--work", tmp_path / "work")
