"""Devices learn and predict sets of tags, which do not exclude one another, and ratings."""

import io
import json

import numpy as np
import pandas as pd
import pytest

import bundles
import fala
import rated
import tagged
from bundles import make_head, repacked
from checkout import SUPPORT
from fala import Budget, Bundle, BundleFormatError, BundleMismatchError, DataError, Device
from fala.model.heads import Head
from fala.model.links import LABELS, Rating
from fala.model.links import TAGS as LINK
from fala_export import write_external, write_release
from fala_export.fit.heads import fit_head
from fala_export.fit.words import add_words
from rated import RANGE, STARS, rmse
from tagged import OWN, TAGS, loss
from word_releases import PROBES, PUBLIC, SHARED, TEXTS

TAGGED = make_head(labels=TAGS, link=LINK)
#: The head of a rating of one number.
RATED = Head("classification", ["stars"], np.ones((1, 1)), np.zeros(1), link=Rating(1, 5, 1))
OF_TAGS, OF_RATINGS = (
    pytest.mark.parametrize("kind", [kind], indirect=True) for kind in ("tags", "ratings")
)


@pytest.fixture(scope="module", params=["tags", "ratings"])
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def releases(tmp_path_factory, kind):
    module = {"tags": tagged, "ratings": rated}[kind]
    return module.write_releases(tmp_path_factory.mktemp(kind))


@pytest.fixture(scope="module")
def learned(tmp_path_factory, kind, releases):
    folder = tmp_path_factory.mktemp("learned") / "device"
    with Device.create(folder, releases["old"]) as device:
        device.learn(TEXTS, OWN if kind == "tags" else STARS)
    return folder


# The vendor


def test_each_tag_is_fitted_like_two_labels(tmp_path):
    random = np.random.default_rng(0)
    vectors = random.normal(size=(300, 4))
    has = vectors @ random.normal(size=(4, 2)) + random.logistic(size=(300, 2)) > 0
    sets = [{name for name, yes in zip("ab", row, strict=True) if yes} for row in has]
    head = fit_head(vectors, sets, exclusive=False)
    for column, name in enumerate("ab"):
        alone = fit_head(vectors, [int(name in tags) for tags in sets])
        np.testing.assert_allclose(head.weight[column], alone.weight[0], rtol=0.1)
    write_external(tmp_path / "x.fala", "x", "1", head, {"a": vectors[0]})
    assert Bundle.open(tmp_path / "x.fala").head() == head
    assert head.in_order(["b", "a"]).weight[0, 0] == head.weight[1, 0]


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
    ("labels", "options", "words"),
    [
        ([{"a"}, {"a", "b"}, {"a"}], {}, "tag 1 of 2 belongs to all rows"),
        ([{"a"}, set(), set()], {"label_names": ["a", "b"]}, "tag 2 of 2 belongs to no row"),
        ([set(), [], ()], {}, "no row has a tag, but a head needs rows with a tag"),
        ([{"a"}, None, set()], {}, "an empty set, not None"),
        ([{"a"}, "a", set()], {}, "a set of tags, as {'a', 'b'}, or None; that is a str"),
        ([1, 2, 9], {"rating": RANGE}, "label of example 2 is 9, not a number from 1 to 5"),
        ([1, np.nan, 2], {"rating": RANGE}, "a number in each row"),
        ([3, 3, 3], {"rating": RANGE}, "two different numbers"),
        ([1, 2, 3], {"rating": (1, np.inf)}, "from a lower to a higher"),
        ([1, 2, 3], {"rating": ("a", "b")}, "two numbers"),
        ([1, 2, 3], {"rating": (1, 2, 3)}, "the least and the largest"),
    ],
)  # fmt: skip
def test_a_head_is_not_fitted_to_wrong_labels(labels, options, words):
    with pytest.raises(fala.FalaError, match=words):
        fit_head(np.eye(3), labels, exclusive="rating" in options, **options)


def test_tags_of_this_format_version_open():
    # Never written again, as long as the format version stays.
    bundle = Bundle.open(SUPPORT / "data" / "tags.fala")
    head = bundle.head()
    assert (head.labels, head.link) == (("funny", "rude"), LINK)
    np.testing.assert_array_equal(head.weight[:, :2], [[1, -2], [0.5, 3]])
    assert bundle.head_digest.startswith("f59f74ff94738a9b")


GOOD = {"low": 1, "high": 5, "noise": 1}


@pytest.mark.parametrize(
    ("head", "forged"),
    [
        *((TAGGED, forged) for forged in ({"exclusive": 0}, {"exclusive": None}, {"rating": GOOD})),
        *((make_head(labels=["stars"], link=Rating(1, 5, 1)), {"rating": rating}) for rating in (
            None, 5, {}, {"low": 1, "high": 5}, {**GOOD, "noise": 0}, {**GOOD, "noise": 50},
            {**GOOD, "low": 5, "high": 1}, {**GOOD, "more": 1}, {**GOOD, "low": True},
            {**GOOD, "high": 1e300},
        )),
    ],
)  # fmt: skip
def test_a_forged_kind_of_labels_is_rejected(tmp_path, head, forged):
    release = bundles.write_word_vector_release(tmp_path / "a.fala", head)
    details = {**release.manifest.details, **forged}
    (tmp_path / "forged.fala").write_bytes(repacked(release.path, details=details))
    of_tags = "exclusive is neither true nor false, or"
    with pytest.raises(BundleFormatError, match=of_tags if head is TAGGED else "rating"):
        Bundle.open(tmp_path / "forged.fala")


# The device


@OF_TAGS
def test_a_device_predicts_the_tags_above_one_half_and_ranks_by_one(device):
    p = device.predict_proba(PROBES)
    assert p.shape == (len(PROBES), 3)
    decided = device.predict(PROBES).tolist()
    assert decided == [frozenset(np.array(TAGS)[row]) for row in p > 0.5]
    assert np.mean(tagged.shares_of(decided) == tagged.shares_of(tagged.TRUTH)) > 0.75
    best = p[:, 1].argmax()
    assert device.rank(PROBES, label="rude", top=1) == [(PROBES[best], p[best, 1])]
    with pytest.raises(DataError, match="pass label=, one of funny, rude, short"):
        device.rank(PROBES)


@OF_TAGS
def test_a_replacement_carries_over_the_tags(tmp_path, device, releases):
    with Device.create(tmp_path / "vendor", releases["mid"]) as vendor:
        of_vendor, decided = loss(vendor), vendor.predict(TEXTS)
    report = device.replace(releases["mid"], Budget(40), accept="better-than-old")
    assert report.decision == "personal" and report.counts.agreement > 0.5
    assert report.comparison.vendor > report.comparison.carried
    assert report.comparison.measure == "cross-entropy, summed over the tags,"
    assert loss(device) < 0.9 * of_vendor
    both = device.compare(PROBES)
    pairs = zip(both.before, both.now, strict=True)
    assert both.differ.tolist() == [before != now for before, now in pairs]
    assert json.dumps(both.to_dict())
    # A text is wrong where the whole set differs.
    wrong = [set(own) != set(tags) for own, tags in zip(OWN, decided, strict=True)]
    changes = device.refine(Budget(400)).changes
    assert changes.vendor == pytest.approx(100 * np.mean(wrong), abs=2)


@OF_RATINGS
def test_a_replacement_carries_over_the_ratings_and_reports_their_rmse(tmp_path, device, releases):
    report = device.fit()
    error = rmse(device.predict(PROBES), rated.TRUTH)
    assert report.scores["rmse"] == pytest.approx(error, rel=0.25)
    assert report.scores["rank_correlation"] > 0.5
    with Device.create(tmp_path / "vendor", releases["mid"]) as vendor:
        known = rmse(vendor.predict(TEXTS), STARS)
        unseen = rmse(vendor.predict(PROBES), rated.TRUTH)
    replaced = device.replace(releases["mid"], Budget(40))
    assert replaced.decision == "personal"
    assert rmse(device.predict(PROBES), rated.TRUTH) < 0.9 * unseen
    assert replaced.scores["rmse"] < replaced.comparison.scores["vendor"]["rmse"]
    assert replaced.comparison.scores["old"]["rank_correlation"] > 0.5
    assert "squared error" in str(replaced)
    changes = device.refine(Budget(400)).changes
    assert changes.measure == "rmse" and changes.vendor == pytest.approx(known, rel=0.05)
    assert changes.negative_flips is changes.right_before_wrong_now is None
    both = device.compare(PROBES)
    assert both.proba_before is both.proba_now is None
    tenth = (RANGE[1] - RANGE[0]) / 10
    assert both.differ.tolist() == (np.abs(both.now - both.before) > tenth).tolist()


def test_labels_are_kept_and_exported(device, kind):
    given, kept, wrong = {
        "tags": ([["rude", "funny"], (), frozenset(), None],
                 [{"funny", "rude"}, set(), set(), None], {"rude", "vile"}),
        "ratings": ([np.float32(2.5), 4.0, "3.75", np.nan], [2.5, 4, 3.75, None], 9),
    }[kind]  # fmt: skip
    device.learn(["one", "two", "three", "four"], given)
    assert [row.label for row in device.examples()][-4:] == kept
    assert [row.example for row in device.examples(label=given[0])][-1] == "one"
    with pytest.raises(DataError, match="is not of the model, which has"):
        device.examples(label=wrong)
    stream = io.StringIO()
    device.export_data(stream)
    rows = [json.loads(line).get("label") for line in stream.getvalue().splitlines()][-4:]
    assert rows == [sorted(label) if isinstance(label, set) else label for label in kept]


@pytest.mark.parametrize(
    ("head", "right", "wrong", "words"),
    [
        *((TAGGED, {"rude"}, *each) for each in (
            ("rude", "as {'a', 'b'}, or None; that of example 1 is a str"), (1, "an int"),
            ({"rude": 1}, "a dict"), (b"rude", "a bytes"),
            ({"rude", "vile"}, "not one of funny, rude, short"),
            ([["rude"]], "not one of funny, rude, short"),
            (np.array(3), "that of example 1 is an ndarray"),
        )),
        *((RATED, 3, wrong, f"label of example 1 is {words}, not a number from 1 to 5")
          for wrong, words in (
            (float("inf"), "inf"), (np.float32(5.5), "5.5"), (10**400, "an int"), ([1], "a list"),
            ("a text of the user", "a text of 18 characters"), (np.zeros(3), "an ndarray"),
        )),
    ],
)  # fmt: skip
def test_a_label_of_another_kind_is_rejected(head, right, wrong, words):
    with pytest.raises(DataError, match=words):
        head.label_shares([right, wrong])


def test_a_rating_is_any_number_within_the_range():
    shares = RATED.label_shares([True, np.float32(4.5), "3", None, np.nan, pd.NA])
    np.testing.assert_array_equal(shares[:, 0], [1, 4.5, 3, *[np.nan] * 3])


def test_values_beyond_the_range_are_ranked_by_their_logits(tmp_path):
    def encoder(texts):
        return np.array([[float(text)] for text in texts], np.float32)

    write_external(tmp_path / "x.fala", "x", "1", RATED, {"1": [1.0]})
    with Device.create(tmp_path / "device", tmp_path / "x.fala", encoder=encoder) as device:
        ranked = device.rank(["6", "-1", "8", "3", "-2", "7"])
    assert ranked == [("8", 5), ("7", 5), ("6", 5), ("3", 3), ("-1", 1), ("-2", 1)]


# What they do not have, and what does not follow them


def test_what_is_for_exclusive_labels_is_an_error(tmp_path, device, releases, kind):
    for_labels = {"tags": "positive is for labels", "ratings": "not for the rating"}
    with pytest.raises(DataError, match=for_labels[kind]):
        device.positive  # noqa: B018
    with pytest.raises(DataError, match="threshold is for labels that exclude"):
        device.predict(PROBES, threshold=0.5)
    if kind == "ratings":
        with pytest.raises(fala.UsageError, match="predict returns its values"):
            device.predict_proba(PROBES)
        return
    with pytest.raises(DataError, match="positive is for labels that exclude one another"):
        Device.create(tmp_path / "other", releases["old"], positive="rude")
    head = Bundle.open(releases["old"]).head()
    with pytest.raises(BundleFormatError, match="a matcher must have one logit"):
        Head("matching", TAGS, head.weight, head.bias, link=LINK)
    with pytest.raises(DataError, match="add_words is for labels that exclude"):
        add_words(head.without_ngrams(), head.lexical, PROBES, tagged.TRUTH, {})


@OF_TAGS
def test_a_release_of_other_tags_or_of_labels_is_rejected(tmp_path, device, releases):
    bundle = Bundle.open(releases["mid"])
    for labels, link in (((*TAGS, "long"), LINK), (TAGS, LABELS)):
        head = make_head(labels=labels, link=link, dimension=bundle.manifest.dimension)
        write_release(tmp_path / "other.fala", bundle, head, {})
        with pytest.raises(BundleMismatchError, match=r"this device does .*tags funny, rude, sho"):
            device.replace(tmp_path / "other.fala")


def test_a_rating_continues_one_of_its_name_whose_range_it_includes():
    stars = ["stars"]
    assert Rating(0, 10, 1).continues(Rating(1, 5, 1), stars, stars)
    assert not Rating(1, 5, 1).continues(Rating(0, 10, 1), stars, stars)
    assert not Rating(1, 5, 1).continues(Rating(1, 5, 1), ["seconds"], stars)
    assert not Rating(1, 5, 1).continues(LABELS, stars, stars)
    assert not LABELS.continues(Rating(1, 5, 1), ["stars", "none"], stars)


@OF_RATINGS
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
        device.replace(releases["mid"])
