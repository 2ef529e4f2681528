"""Devices whose labels are numbers: stars, or seconds watched."""

import io
import json

import numpy as np
import pytest

import rated
from fala import (
    Budget,
    BundleFormatError,
    BundleMismatchError,
    DataError,
    Device,
    UsageError,
    WorseModelError,
)
from fala.bundle.reading import Bundle
from fala.model.heads import Head
from fala.model.links import Rating
from fala_export import write_external, write_release
from fala_export.fit.heads import fit_head
from hostile_bundles import Changes, repack
from rated import RANGE, STARS, TRUTH, rmse
from word_releases import PROBES, PUBLIC, SHARED, TEXTS


@pytest.fixture(scope="module")
def releases(tmp_path_factory):
    return rated.write_releases(tmp_path_factory.mktemp("rated"))


@pytest.fixture(scope="module")
def learned(tmp_path_factory, releases):
    folder = tmp_path_factory.mktemp("learned") / "device"
    with Device.create(folder, releases["old"]) as device:
        device.learn(TEXTS, STARS)
    return folder


# The vendor


def test_a_head_is_fitted_to_numbers(releases):
    """The planted weights are found; the noise is the error on held-out texts."""
    bundle = Bundle.open(releases["new"])
    head = bundle.head()
    (values,) = (
        head.vendor_model()
        .probabilities(
            head.inputs(PROBES, dict(zip(PROBES, bundle.backbone().encode(PROBES), strict=True))),
            head.words(PROBES),
        )
        .T
    )
    truth = np.array(rated.stars_of(PROBES, SHARED))
    assert head.labels == ("stars",)
    assert (head.link.low, head.link.high) == RANGE
    assert values.shape == truth.shape
    assert rmse(values, truth) < 0.6 * truth.std()
    assert head.link.noise == pytest.approx(rmse(values, truth), rel=0.2)


def test_a_head_is_fitted_to_vectors_and_seconds(tmp_path):
    random = np.random.default_rng(0)
    vectors, weight = random.normal(size=(200, 4)), np.array([100, -50, 20, 0])
    seconds = np.clip(900 + vectors @ weight + 10 * random.normal(size=200), 0, 3600)
    head = fit_head(vectors, seconds, rating=(0, 3600))
    np.testing.assert_allclose(head.weight[0], weight, atol=5)
    write_external(tmp_path / "x.fala", "x", "1", head, {"a": vectors[0]})
    again = Bundle.open(tmp_path / "x.fala").head()
    assert again == head
    assert again.labels == ("rating",)


def test_rows_of_the_same_example_are_averaged():
    vectors = np.eye(3)[[0, 0, 1, 1, 2, 2] * 10]
    head = fit_head(vectors, [1, 3, 3, 5, 2, 4] * 10, rating=RANGE)
    values = head.vendor_model().probabilities(np.eye(3, dtype=np.float32))
    np.testing.assert_allclose(values, [[2], [4], [3]], atol=0.1)
    assert 0.9 < head.link.noise < 1.3


@pytest.mark.parametrize(
    ("numbers", "rating", "error", "words"),
    [
        ([1, 2, 9], RANGE, DataError, "label of example 2 is 9, not a number from 1 to 5"),
        ([1, np.nan, 2], RANGE, DataError, "a number in each row"),
        ([1, 2, None], RANGE, DataError, "a number in each row"),
        ([3, 3, 3], RANGE, DataError, "two different ones"),
        ([1, 2, 3], (5, 1), BundleFormatError, "from a lower to a higher"),
        ([1, 2, 3], (1, np.inf), BundleFormatError, "from a lower to a higher"),
        ([1, 2, 3], ("a", "b"), BundleFormatError, "two numbers"),
        ([1, 2, 3], (1, 2, 3), DataError, "the least and the largest"),
    ],
)
def test_numbers_that_cannot_be_fitted(numbers, rating, error, words):
    with pytest.raises(error, match=words):
        fit_head(np.eye(3), numbers, rating=rating)


@pytest.mark.parametrize(
    "rating",
    [
        None, 5, {}, {"low": 1, "high": 5}, {"low": 1, "high": 5, "noise": 0},
        {"low": 5, "high": 1, "noise": 1}, {"low": 1, "high": 5, "noise": 1, "more": 1},
        {"low": True, "high": 5, "noise": 1}, {"low": 1, "high": 1e300, "noise": 1},
    ],
)  # fmt: skip
def test_a_forged_rating_is_rejected(tmp_path, releases, rating):
    forged = tmp_path / "forged.fala"

    details = Bundle.open(releases["old"]).manifest.details
    repack(releases["old"], forged, Changes(manifest={"details": {**details, "rating": rating}}))
    with pytest.raises(BundleFormatError, match="rating"):
        Bundle.open(forged)


# The device


def test_reports_have_rmse_and_rank_correlation(device, releases):
    report = device.fit()
    assert report.scores["rmse"] == pytest.approx(rmse(device.predict(PROBES), TRUTH), rel=0.25)
    assert report.scores["rank_correlation"] > 0.5
    preview = device.preview(releases["new"])
    assert set(preview.comparison.scores) <= {"old", "vendor", "carried"}
    replaced = device.replace(releases["mid"], Budget(200))
    assert replaced.scores["rmse"] < replaced.comparison.scores["vendor"]["rmse"]
    assert replaced.comparison.scores["old"]["rank_correlation"] > 0.5
    assert "squared error" in str(replaced)
    assert json.dumps(replaced.to_dict())


@pytest.mark.parametrize(("lexical", "budget"), [(True, 40), (False, 0)])
def test_a_replacement_carries_over_the_ratings(tmp_path, releases, plain, lexical, budget):
    chosen = releases if lexical else plain
    with Device.create(tmp_path / "vendor", chosen["mid"]) as vendor:
        of_vendor = rmse(vendor.predict(PROBES), TRUTH)
    with Device.create(tmp_path / "device", chosen["old"]) as device:
        device.learn(TEXTS, STARS)
        report = device.replace(chosen["mid"], Budget(budget))
        assert report.decision == "personal"
        assert min(budget, 20) <= report.forward_passes <= budget
        assert rmse(device.predict(PROBES), TRUTH) < 0.9 * of_vendor
        device.refine(Budget(400))
        assert rmse(device.predict(PROBES), TRUTH) < 0.9 * of_vendor


def test_ratings_are_stored_exactly(device):
    device.learn(["one", "two", "three"], [np.float32(2.5), 4.0, "3.75"])
    labels = {row.example: row.label for row in device.examples(labelled=True)}
    assert [labels[text] for text in ("one", "two", "three")] == [2.5, 4, 3.75]
    assert [row.example for row in device.examples(label=2.5)] == ["one"]
    for wrong in (9, "many"):
        with pytest.raises(DataError, match="is not of the model, which has the rating 'stars'"):
            device.examples(label=wrong)
    stream = io.StringIO()
    device.export_data(stream)
    rows = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [row["label"] for row in rows[-3:]] == [2.5, 4, 3.75]


class Silent:
    """An object with ``__float__`` that is no number."""

    def __float__(self):
        raise RuntimeError

    def __str__(self):
        return "silent"


@pytest.mark.parametrize(
    ("label", "words"),
    [
        (float("inf"), "inf"), (0.99, "0.99"), (np.float32(5.5), "5.5"),
        ("good", "a text of 4 characters"),
        (False, "False"), ("a text of the user", "a text of 18 characters"), ([1], "a list"),
        (10**400, "an int"), (np.zeros(3), "an ndarray"), (Silent(), "a Silent"),
    ],
)  # fmt: skip
def test_other_labels_are_rejected(device, label, words):
    count = len(list(device.examples()))
    with pytest.raises(DataError, match=f"label of example 1 is {words}, not a number from 1 to 5"):
        device.learn(["a", "b"], [3, label])
    assert len(list(device.examples())) == count


def test_ratings_have_no_probabilities_and_threshold(device):
    with pytest.raises(UsageError, match="predict returns its values"):
        device.predict_proba(PROBES)
    with pytest.raises(DataError, match="threshold is for labels that exclude"):
        device.predict(PROBES, threshold=0.5)
    with pytest.raises(DataError, match="not for the rating"):
        device.positive  # noqa: B018


def test_values_beyond_the_range_are_ranked_too(tmp_path):
    def encoder(texts):
        return np.array([[float(text)] for text in texts], np.float32)

    head = Head("classification", ["stars"], np.ones((1, 1)), np.zeros(1), link=Rating(1, 5, 1))
    write_external(tmp_path / "x.fala", "x", "1", head, {"1": [1.0]})
    with Device.create(tmp_path / "device", tmp_path / "x.fala", encoder=encoder) as device:
        ranked = device.rank(["6", "-1", "8", "3", "-2", "7"])
    assert ranked == [("8", 5), ("7", 5), ("6", 5), ("3", 3), ("-1", 1), ("-2", 1)]


def with_range(path, release, low, high, names=("stars",)):
    """A release with another range, or name."""
    bundle = Bundle.open(release)
    head = fit_head(
        bundle.backbone(), PUBLIC, rated.stars_of(PUBLIC, SHARED), lexical=False,
        rating=(low, high), label_names=names,
    )  # fmt: skip
    write_release(path, bundle, head, {})
    return path


def test_a_release_of_another_kind_is_rejected(tmp_path, device, releases):
    values = device.predict(PROBES)
    bundle = Bundle.open(releases["mid"])
    labels = fit_head(
        bundle.backbone(), PUBLIC, ["stars", "none"] * 150, label_names=["stars", "none"]
    )
    write_release(tmp_path / "labels.fala", bundle, labels, {})
    renamed = with_range(tmp_path / "other.fala", releases["mid"], 1, 5, ["seconds"])
    for path in (tmp_path / "labels.fala", renamed):
        with pytest.raises(BundleMismatchError, match="the rating 'stars' from 1 to 5"):
            device.replace(path)
    np.testing.assert_array_equal(device.predict(PROBES), values)


def test_a_wider_range_accepts_more_ratings(tmp_path, device, releases):
    wide = with_range(tmp_path / "wide.fala", releases["mid"], 0, 10)
    device.replace(wide, Budget(20))
    assert device.learn(["zorgon"], [9.5]).labelled == len(TEXTS) + 1
    device.rollback()
    assert device.predict(PROBES).max() <= 5
    assert device.fit().fitted == len(TEXTS)
    device.rollback()
    with pytest.raises(BundleMismatchError, match="from 0 to 10"):
        device.replace(releases["new"])


def test_a_release_that_is_worse_is_rejected(tmp_path, device, releases):
    bundle = Bundle.open(releases["mid"])
    stars = 6 - np.array(rated.stars_of(PUBLIC, SHARED))
    head = fit_head(bundle.backbone(), PUBLIC, stars, rating=RANGE, label_names=["stars"])
    write_release(tmp_path / "wrong.fala", bundle, head, {})
    with pytest.raises(WorseModelError):
        device.replace(tmp_path / "wrong.fala", Budget(60), accept="better-than-old")


@pytest.mark.parametrize("noise", [0.01, 50.0, float("nan")])
def test_an_implausible_noise_is_rejected(noise):
    with pytest.raises(BundleFormatError, match="noise"):
        Rating(1, 5, noise)
