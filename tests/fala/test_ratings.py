"""Devices learn and predict numbers, such as stars, or seconds watched."""

import io
import json

import numpy as np
import pandas as pd
import pytest

import fala
import rated
from fala import Budget, Bundle, BundleFormatError, BundleMismatchError, DataError, Device
from fala.model.heads import Head
from fala.model.links import LABELS, Rating
from fala_export import write_external, write_release
from fala_export.fit.heads import fit_head
from hostile_bundles import Changes, repack
from rated import RANGE, STARS, TRUTH, rmse
from word_releases import PROBES, PUBLIC, SHARED, TEXTS

#: The head of a rating of one number.
HEAD = Head("classification", ["stars"], np.ones((1, 1)), np.zeros(1), link=Rating(1, 5, 1))


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


def test_a_head_is_fitted_to_numbers(tmp_path):
    """The planted weights are found, and the noise is the error about them."""
    random = np.random.default_rng(0)
    vectors, weight = random.normal(size=(200, 4)), np.array([100, -50, 20, 0])
    seconds = np.clip(900 + vectors @ weight + 30 * random.normal(size=200), 300, 1500)
    head = fit_head(vectors, seconds, rating=(300, 1500))
    np.testing.assert_allclose(head.weight[0], weight, atol=5)
    assert (head.link.low, head.link.high) == (300, 1500)
    assert head.link.noise == pytest.approx(30, rel=0.2)
    write_external(tmp_path / "x.fala", "x", "1", head, {"a": vectors[0]})
    again = Bundle.open(tmp_path / "x.fala").head()
    assert again == head and again.labels == ("rating",)


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
        ([3, 3, 3], RANGE, DataError, "two different numbers"),
        ([1, 2, 3], (1, np.inf), BundleFormatError, "from a lower to a higher"),
        ([1, 2, 3], ("a", "b"), BundleFormatError, "two numbers"),
        ([1, 2, 3], (1, 2, 3), DataError, "the least and the largest"),
    ],
)
def test_a_head_is_not_fitted_to_wrong_numbers(numbers, rating, error, words):
    with pytest.raises(error, match=words):
        fit_head(np.eye(3), numbers, rating=rating)


@pytest.mark.parametrize(
    "rating",
    [
        None, 5, {}, {"low": 1, "high": 5}, {"low": 1, "high": 5, "noise": 0},
        {"low": 1, "high": 5, "noise": 50}, {"low": 5, "high": 1, "noise": 1},
        {"low": 1, "high": 5, "noise": 1, "more": 1}, {"low": True, "high": 5, "noise": 1},
        {"low": 1, "high": 1e300, "noise": 1},
    ],
)  # fmt: skip
def test_a_forged_rating_is_rejected(tmp_path, releases, rating):
    forged = tmp_path / "forged.fala"
    details = Bundle.open(releases["old"]).manifest.details
    repack(releases["old"], forged, Changes(manifest={"details": {**details, "rating": rating}}))
    with pytest.raises(BundleFormatError, match="rating"):
        Bundle.open(forged)


# The device


def test_a_replacement_carries_over_the_ratings_and_reports_their_rmse(tmp_path, device, releases):
    report = device.fit()
    assert report.scores["rmse"] == pytest.approx(rmse(device.predict(PROBES), TRUTH), rel=0.25)
    assert report.scores["rank_correlation"] > 0.5
    preview = device.preview(releases["new"])
    assert set(preview.comparison.scores) <= {"old", "vendor", "carried"}
    with Device.create(tmp_path / "vendor", releases["mid"]) as vendor:
        of_vendor, unseen = (
            rmse(vendor.predict(texts), stars) for texts, stars in ((TEXTS, STARS), (PROBES, TRUTH))
        )
    replaced = device.replace(releases["mid"], Budget(40))
    assert replaced.decision == "personal" and rmse(device.predict(PROBES), TRUTH) < 0.9 * unseen
    assert replaced.scores["rmse"] < replaced.comparison.scores["vendor"]["rmse"]
    assert replaced.comparison.scores["old"]["rank_correlation"] > 0.5
    assert "squared error" in str(replaced)
    changes = device.refine(Budget(400)).changes
    assert changes.measure == "rmse" and changes.vendor == pytest.approx(of_vendor, rel=0.05)
    assert changes.negative_flips is changes.right_before_wrong_now is None
    both = device.compare(PROBES)
    assert both.proba_before is both.proba_now is None
    tenth = (RANGE[1] - RANGE[0]) / 10
    assert both.differ.tolist() == (np.abs(both.now - both.before) > tenth).tolist()


def test_ratings_are_stored_exactly(device):
    device.learn(["one", "two", "three"], [np.float32(2.5), 4.0, "3.75"])
    assert [row.label for row in device.examples()][-3:] == [2.5, 4, 3.75]
    assert [row.example for row in device.examples(label=2.5)] == ["one"]
    for wrong in (9, "many"):
        with pytest.raises(DataError, match="is not of the model, which has the rating 'stars'"):
            device.examples(label=wrong)
    stream = io.StringIO()
    device.export_data(stream)
    rows = [json.loads(line)["label"] for line in stream.getvalue().splitlines()]
    assert rows[-3:] == [2.5, 4, 3.75]


class Silent:
    """An object with ``__float__`` that is no number."""

    def __float__(self):
        raise RuntimeError


def test_a_label_is_a_number_within_the_range():
    shares = HEAD.label_shares([True, np.float32(4.5), "3", None, np.nan, pd.NA])
    np.testing.assert_array_equal(shares[:, 0], [1, 4.5, 3, *[np.nan] * 3])
    for label, words in (
        (float("inf"), "inf"), (np.float32(5.5), "5.5"), (False, "False"),
        ("a text of the user", "a text of 18 characters"), ([1], "a list"), (10**400, "an int"),
        (np.zeros(3), "an ndarray"), (Silent(), "a Silent"),
    ):  # fmt: skip
        match = f"label of example 1 is {words}, not a number from 1 to 5"
        with pytest.raises(DataError, match=match):
            HEAD.label_shares([3, label])


def test_ratings_have_no_probabilities_no_threshold_and_no_positive_label(device):
    with pytest.raises(fala.UsageError, match="predict returns its values"):
        device.predict_proba(PROBES)
    with pytest.raises(DataError, match="threshold is for labels that exclude"):
        device.predict(PROBES, threshold=0.5)
    with pytest.raises(DataError, match="not for the rating"):
        device.positive  # noqa: B018


def test_values_beyond_the_range_are_ranked_by_their_logits(tmp_path):
    def encoder(texts):
        return np.array([[float(text)] for text in texts], np.float32)

    write_external(tmp_path / "x.fala", "x", "1", HEAD, {"1": [1.0]})
    with Device.create(tmp_path / "device", tmp_path / "x.fala", encoder=encoder) as device:
        ranked = device.rank(["6", "-1", "8", "3", "-2", "7"])
    assert ranked == [("8", 5), ("7", 5), ("6", 5), ("3", 3), ("-1", 1), ("-2", 1)]


def test_a_rating_continues_one_of_its_name_whose_range_it_includes():
    stars = ["stars"]
    assert Rating(0, 10, 1).continues(Rating(1, 5, 1), stars, stars)
    assert not Rating(1, 5, 1).continues(Rating(0, 10, 1), stars, stars)
    assert not Rating(1, 5, 1).continues(Rating(1, 5, 1), ["seconds"], stars)
    assert not Rating(1, 5, 1).continues(LABELS, stars, stars)
    assert not LABELS.continues(Rating(1, 5, 1), ["stars", "none"], stars)


def test_a_wider_range_accepts_more_ratings(tmp_path, device, releases):
    bundle, wide = Bundle.open(releases["mid"]), tmp_path / "wide.fala"
    head = fit_head(
        bundle.backbone(), PUBLIC, rated.stars_of(PUBLIC, SHARED), lexical=False, rating=(0, 10),
        label_names=["stars"],
    )  # fmt: skip
    write_release(wide, bundle, head, {})
    device.replace(wide, Budget(20))
    assert device.learn(["zorgon"], [9.5]).labelled == len(TEXTS) + 1
    device.rollback()
    assert device.predict(PROBES).max() <= 5
    assert device.fit().fitted == len(TEXTS)
    device.rollback()
    with pytest.raises(BundleMismatchError, match="from 0 to 10"):
        device.replace(releases["new"])
