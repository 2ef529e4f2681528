"""Ratings at the vendor: from a table of stars to a device that predicts stars."""

import pytest

from checkout import real_data
from export_command import done, failed, works
from fala import Bundle, Device
from fala.model.links import Rating
from public_data import write_table
from vector_files import write_old_and_new

pytestmark = pytest.mark.slow

WORDS = ("awful", "bad", "dull", "fine", "good", "great")


def rated(user, at):
    """A text and its stars; even users add half a star for a plot."""
    plot = at % 5 == 0
    text = f"a {WORDS[at % 6]} film with {'a plot' if plot else 'songs'}, {user} saw {at}"
    stars = 1 + at % 6 * 0.7 + (0.5 if plot and user % 2 == 0 else 0) + 0.2 * ((user + at) % 3 - 1)
    return text, round(min(5.0, max(1.0, stars)), 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A vendor's table and two files of word vectors."""
    folder = tmp_path_factory.mktemp("stars")
    write_old_and_new(folder, WORDS, "plot 0 0 0.5", "songs 0 0 0")
    rows = [[*rated(user, at), f"u{user}"] for user in range(32) for at in range(36)]
    write_table(folder / "films.csv", ["review", "stars", "user"], rows)
    return folder


@pytest.fixture(scope="module")
def released(folder):
    """The old release, and the summary of the new one."""
    data, old, new = (folder / name for name in ("films.csv", "old.toml", "new.toml"))
    common = ("--name", "films")
    works("init", data, "--from", folder / "old.txt", "--out", old, *common)
    works("release", old, "--out", old.with_suffix(".fala"))
    works("init", data, "--from", folder / "new.txt", "--out", new, *common, "--old",
        folder / "old.fala", "--publish", folder / "REPO")  # fmt: skip
    recipe = new.read_text().replace("[check]", "[check]\nusers = 2")
    assert 'label = "stars"' in recipe and "ratings: 1 to 5" in recipe and "\n[scales]\n" in recipe
    new.write_text(recipe.replace("rating = [1, 5]", "rating = [1, 6]"))  # a wider range
    return done("release", new, "--out", new.with_suffix(".fala"))


@pytest.mark.parametrize("stars", [["good", "bad"], ["0", "1"]])
def test_a_column_of_names_or_of_two_numbers_is_of_labels(tmp_path, stars):
    rows = [[f"a film {at}", stars[at % 2], f"u{at % 5}"] for at in range(120)]
    data = write_table(tmp_path / "films.csv", ["text", "rating", "user"], rows)
    works("init", data, "--out", tmp_path / "recipe.toml")
    assert 'label = "rating"' in (tmp_path / "recipe.toml").read_text()


def test_a_release_of_ratings_has_all_its_parts(folder, released):
    bundle = Bundle.open(folder / "new.fala")
    head = bundle.head()
    assert isinstance(head.link, Rating) and (head.link.low, head.link.high) == (1, 6)
    assert head.labels == ("rating",) and head.lexical is not None
    assert list(bundle.bridges()) == [Bundle.open(folder / "old.fala").backbone_digest]
    assert [each.to_details() for each in bundle.scales] == released["scales"] != []
    check = bundle.manifest.details["check"]
    assert check == released["check"] and check["metric"] == "rmse"
    assert check["rmse"]["fala"] < check["rmse"]["new_global"]
    assert 0 < check["rank_correlation"]["fala"] <= 1
    figures = released["training"]["figures"]["frozen"]["pooled"]
    assert figures["rmse"] < 0.5 and figures["rank_correlation"] > 0.9
    assert released["published"]["version"] == 1
    again = works("release", folder / "new.toml", "--out", folder / "new.fala").stdout
    assert "RMSE" in again and "half the squared error" in again and "entropy" not in again


def test_a_device_learns_is_updated_and_answers_in_stars(folder, released, tmp_path):
    texts, stars = zip(*(rated(40, at) for at in range(30)), strict=True)
    with Device.create(tmp_path / "device", folder / "old.fala") as device:
        device.learn(texts, stars)
        device.replace(folder / "new.fala")
        values = device.predict(["a great film with a plot", "an awful film with songs"])
    assert values[0] > 4 > 2 > values[1]


def test_words_and_scales_accept_ratings_and_training_rejects_them(folder, tmp_path):
    out, vectors = tmp_path / "out.fala", tmp_path / "words.fala"
    works("word-vectors", folder / "new.txt", "--out", vectors)
    data = ("--data", folder / "films.csv", "--text", "review", "--label", "stars")
    words = ("train", vectors, *data, "--out", out)
    works(*words, "--frozen", "--no-lexical", "--rating", "0", "10")
    assert Bundle.open(out).head().link.high == 10
    works("scales", "--release", out, *data)
    assert [row.labels for row in Bundle.open(out).scales] == [10, 20]
    message = failed(*words, "--work", tmp_path / "work", "--rating", "1", "5")
    assert "not for the rating 'rating' from 1 to 5" in message
    beyond = failed(*words, "--frozen", "--rating", "2", "3")
    assert "label must be a number from 2 to 3" in beyond


def test_a_writers_device_has_a_lower_rmse_on_real_reviews(tmp_path):
    """The device of the busiest of four writers against the unchanged release."""
    reviews = real_data("scale-reviews")
    vectors = next(real_data("glove-sample").glob("*.txt"))
    rows = []
    for folder in sorted(path for path in reviews.iterdir() if path.is_dir()):
        texts, ratings = (
            (folder / f"{name}.{folder.name}").read_text("latin-1").splitlines()
            for name in ("subj", "rating")
        )
        some = list(zip(texts, ratings, strict=True))[::12]
        rows += [[text[:2000], rating, folder.name] for text, rating in some]
    write_table(tmp_path / "reviews.csv", ["review", "rating", "author"], rows)
    data, old, new = (tmp_path / name for name in ("reviews.csv", "old.toml", "new.toml"))
    works("init", data, "--from", vectors, "--name", "old", "--out", old)
    works("release", old, "--out", old.with_suffix(".fala"))
    works("init", data, "--from", vectors, "--name", "new", "--old", tmp_path / "old.fala",
        "--out", new)  # fmt: skip
    new.write_text(new.read_text().replace("[bridge]", "# [bridge]").replace("\nfrom = [", "\n# ["))
    check = done("release", new, "--out", new.with_suffix(".fala"))["check"]
    assert check["gain"] > 0 and check["rmse"]["fala"] < 0.25
