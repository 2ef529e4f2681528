"""Ratings and tags at the vendor: from a table to a device that answers in stars or sets."""

import pytest

from export_command import done, failed, works
from fala import Bundle, Device
from fala.model.links import TAGS, Rating
from fala_export.base.errors import RowError
from fala_export.rows.columns import Columns
from fala_export.rows.row_files import file_rows
from public_data import write_table
from vector_files import write_old_and_new

pytestmark = pytest.mark.slow

QUALITIES = ("awful", "bad", "dull", "fine", "good", "great")
SUBJECTS = {"goal": ["sport"], "budget": ["money"], "transfer": ["sport", "money"], "rain": []}


def rated(user, at):
    """A text and its stars; even users add half a star for a plot."""
    plot = at % 5 == 0
    text = f"a {QUALITIES[at % 6]} film with {'a plot' if plot else 'songs'}, {user} saw {at}"
    stars = 1 + at % 6 * 0.7 + (0.5 if plot and user % 2 == 0 else 0) + 0.2 * ((user + at) % 3 - 1)
    return text, round(min(5.0, max(1.0, stars)), 1)


def tagged(user, at):
    """A text and its tags; a third of the users see money in rain."""
    word = [*SUBJECTS][at % 4]
    text = f"{word} {[*SUBJECTS][(at + user) % 4]} news {user * 32 + at}"
    own = ["money"] if user % 3 == 0 and at % 8 == 3 else []
    return text, {*SUBJECTS[word], *own}


@pytest.fixture(scope="module")
def films(tmp_path_factory):
    """A folder with a table of stars and two files of word vectors."""
    folder = tmp_path_factory.mktemp("films")
    write_old_and_new(folder, QUALITIES, "plot 0 0 0.5", "songs 0 0 0")
    rows = [[*rated(user, at), f"u{user}"] for user in range(28) for at in range(36)]
    write_table(folder / "films.csv", ["review", "stars", "user"], rows)
    return folder


@pytest.fixture(scope="module")
def news(tmp_path_factory):
    """A folder with tags as a column of names and as a column per tag, and two vector files."""
    folder = tmp_path_factory.mktemp("news")
    write_old_and_new(folder, SUBJECTS, "news 0 0 0.5")
    rows = [(*tagged(user, at), f"u{user}") for user in range(28) for at in range(32)]
    by_name = [[text, " | ".join(sorted(tags)), user] for text, tags, user in rows]
    by_tag = [[text, int("sport" in tags), int("money" in tags), user] for text, tags, user in rows]
    write_table(folder / "names.csv", ["text", "label", "user"], by_name)
    write_table(folder / "columns.csv", ["text", "sport", "money", "user"], by_tag)
    return folder


def old_release(folder, data, kind, refused):
    """Make a release of the old word vectors, as a head with scales; no backbone is trained."""
    words, old = folder / "words.fala", folder / "old.fala"
    works("word-vectors", folder / "old.txt", "--out", words)
    train = ("train", words, *data, "--out", old)
    works(*train, "--frozen", "--no-lexical", *kind)
    works("scales", "--release", old, *data)
    assert Bundle.open(old).scales[0].labels == 10
    assert refused in failed(*train, "--work", folder / "work", *kind)
    return old


def new_recipe(folder, data, old, *options):
    """Begin the recipe of a release of the new word vectors, and return its file."""
    out = folder / "new.toml"
    works("init", folder / data, "--from", folder / "new.txt", "--old", old, "--out", out, *options)
    out.write_text(out.read_text().replace("\n[check]", "\n[check]\nusers = 2"))
    return out


@pytest.mark.parametrize("stars", [["good", "bad"], ["0", "1"]])
def test_a_column_of_names_or_of_two_numbers_is_of_labels(tmp_path, stars):
    rows = [[f"a film {at}", stars[at % 2], f"u{at % 5}"] for at in range(120)]
    data = write_table(tmp_path / "films.csv", ["text", "rating", "user"], rows)
    works("init", data, "--out", tmp_path / "recipe.toml")
    assert 'label = "rating"' in (tmp_path / "recipe.toml").read_text()


def test_devices_of_a_release_of_ratings_answer_in_stars(films, tmp_path):
    data = ("--data", films / "films.csv", "--text", "review", "--label", "stars")
    refused = "not for the rating 'rating' from 1 to 5"
    old, new = old_release(films, data, ("--rating", 1, 5), refused), films / "new.fala"
    file = new_recipe(films, "films.csv", old, "--publish", films / "REPO")
    text = file.read_text()
    assert 'label = "stars"' in text and "ratings: 1 to 5" in text and "\n[scales]\n" in text
    file.write_text(text.replace("rating = [1, 5]", "rating = [1, 6]"))  # a wider range
    summary, bundle = done("release", file, "--out", new), Bundle.open(new)
    head = bundle.head()
    assert isinstance(head.link, Rating) and (head.link.low, head.link.high) == (1, 6)
    assert head.labels == ("rating",) and head.lexical is not None
    assert list(bundle.bridges()) == [Bundle.open(old).backbone_digest]
    assert [each.to_details() for each in bundle.scales] == summary["scales"] != []
    check = bundle.manifest.details["check"]
    assert check == summary["check"] and check["metric"] == "rmse"
    assert check["rmse"]["fala"] < check["rmse"]["new_global"]
    assert 0 < check["rank_correlation"]["fala"] <= 1
    figures = summary["training"]["figures"]["frozen"]["pooled"]
    assert figures["rmse"] < 0.5 and figures["rank_correlation"] > 0.9
    assert summary["published"]["version"] == 1
    again = works("release", file, "--out", new).stdout
    assert "RMSE" in again and "half the squared error" in again and "entropy" not in again
    texts, stars = zip(*(rated(40, at) for at in range(30)), strict=True)
    with Device.create(tmp_path / "device", old) as device:
        device.learn(texts, stars)
        device.replace(new)
        values = device.predict(["a great film with a plot", "an awful film with songs"])
    assert values[0] > 4 > 2 > values[1]


def test_a_column_of_names_and_a_column_per_tag_are_the_same_rows(news, tmp_path):
    first = file_rows(news / "names.csv", link=TAGS)
    second = file_rows(news / "columns.csv", Columns(labels="sport, money"), link=TAGS)
    assert [row.label for row in first] == [row.label for row in second]
    assert frozenset() in {row.label for row in first}
    wrong = write_table(tmp_path / "wrong.csv", ["text", "sport", "money"], [["goal", 2, 0]])
    with pytest.raises(RowError, match="line 2: a column of a tag must have 0 or 1; sport has '2'"):
        file_rows(wrong, Columns(labels="sport, money"), link=TAGS)


def test_devices_of_a_release_of_tags_decide_sets(news, tmp_path):
    data = ("--data", news / "columns.csv", "--labels", "sport,money")
    old = old_release(news, data, ("--tags",), "not for tags money, sport")
    new = news / "new.fala"
    message = failed("train", news / "words.fala", *data, "--frozen", "--out", new)
    assert "several columns" in message
    file = new_recipe(news, "columns.csv", old, "--tags", "--labels", "sport,money")
    assert "tags = true" in file.read_text() and "[scales]" in file.read_text()
    summary, bundle = done("release", file, "--out", new), Bundle.open(new)
    assert bundle.head().link == TAGS and bundle.head().labels == ("money", "sport")
    assert summary["check"]["auc"]["fala"] > 0.9 and len(bundle.scales[0].numbers) == 4
    assert summary["training"]["figures"]["frozen"]["pooled"]["auc"] > 0.9
    with Device.create(tmp_path / "device", old) as device:
        device.learn(["goal news", "budget news", "rain news"], [{"sport"}, {"money"}, set()])
        device.replace(new)
        assert device.predict(["transfer transfer news"]) == [{"sport", "money"}]
