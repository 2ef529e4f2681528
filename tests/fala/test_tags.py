"""Devices learn and predict sets of tags, which do not exclude one another."""

import io
import json

import numpy as np
import pytest

import tagged
from bundles import make_head
from checkout import SUPPORT
from fala import Budget, Bundle, BundleFormatError, BundleMismatchError, DataError, Device
from fala.model.heads import Head
from fala.model.links import TAGS as LINK
from fala_export import write_external, write_release
from fala_export.fit.heads import fit_head
from fala_export.fit.words import add_words
from hostile_bundles import Changes, repack
from tagged import OWN, TAGS, TRUTH, loss
from word_releases import PROBES, TEXTS


@pytest.fixture(scope="module")
def releases(tmp_path_factory):
    return tagged.write_releases(tmp_path_factory.mktemp("tagged"), ages=("old", "mid"))


@pytest.fixture(scope="module")
def learned(tmp_path_factory, releases):
    folder = tmp_path_factory.mktemp("learned") / "device"
    with Device.create(folder, releases["old"]) as device:
        device.learn(TEXTS, OWN)
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


@pytest.mark.parametrize(
    ("sets", "names", "words"),
    [
        ([{"a"}, {"a", "b"}, {"a"}], None, "tag 1 of 2 belongs to all rows"),
        ([{"a"}, set(), set()], ["a", "b"], "tag 2 of 2 belongs to no row"),
        ([set(), [], ()], None, "no row has a tag, but a head needs rows with a tag"),
        ([{"a"}, None, set()], None, "an empty set, not None"),
        ([{"a"}, {"c"}, set()], ["a"], "a tag of example 1 is a text of 1 character, not one of a"),
        ([{"a"}, "a", set()], None, "a set of tags, as {'a', 'b'}, or None; that is a str"),
    ],
)
def test_a_head_is_not_fitted_to_wrong_sets(sets, names, words):
    with pytest.raises(DataError, match=words):
        fit_head(np.eye(3), sets, label_names=names, exclusive=False)


def test_tags_of_this_format_version_open():
    # Never written again, as long as the format version stays.
    bundle = Bundle.open(SUPPORT / "data" / "tags.fala")
    head = bundle.head()
    assert (head.labels, head.link) == (("funny", "rude"), LINK)
    np.testing.assert_array_equal(head.weight[:, :2], [[1, -2], [0.5, 3]])
    assert bundle.head_digest.startswith("f59f74ff94738a9b")


def test_a_forged_kind_of_labels_is_rejected(tmp_path, releases):
    details = Bundle.open(releases["old"]).manifest.details
    rating = {"low": 1.0, "high": 5.0, "noise": 1.0}
    for forged in ({"exclusive": 0}, {"exclusive": None}, {"rating": rating}):
        manifest = {"details": {**details, **forged}}
        repack(releases["old"], tmp_path / "x.fala", Changes(manifest=manifest))
        with pytest.raises(BundleFormatError, match="exclusive is neither true nor false, or"):
            Bundle.open(tmp_path / "x.fala")


# The device


def test_a_device_predicts_the_tags_above_one_half_and_ranks_by_one(device):
    p = device.predict_proba(PROBES)
    assert p.shape == (len(PROBES), 3)
    assert np.abs(p.sum(axis=1) - 1).max() > 0.1
    decided = device.predict(PROBES).tolist()
    assert decided == [frozenset(np.array(TAGS)[row]) for row in p > 0.5]
    assert np.mean(tagged.shares_of(decided) == tagged.shares_of(TRUTH)) > 0.75
    best = p[:, 1].argmax()
    assert device.rank(PROBES, label="rude", top=1) == [(PROBES[best], p[best, 1])]
    with pytest.raises(DataError, match="pass label=, one of funny, rude, short"):
        device.rank(PROBES)


def test_a_replacement_carries_over_the_tags(tmp_path, device, releases):
    with Device.create(tmp_path / "vendor", releases["mid"]) as vendor:
        of_vendor, decided = loss(vendor), vendor.predict(TEXTS)
    preview = device.preview(releases["mid"])
    report = device.replace(releases["mid"], Budget(40), accept="better-than-old")
    assert preview.decision == report.decision == "personal"
    assert report.comparison.vendor > report.comparison.carried
    assert report.comparison.measure == "cross-entropy, summed over the tags,"
    assert report.counts.agreement > 0.5 and loss(device) < 0.9 * of_vendor
    both = device.compare(PROBES)
    pairs = zip(both.before, both.now, strict=True)
    assert both.differ.tolist() == [before != now for before, now in pairs]
    assert json.dumps(both.to_dict())
    # A text is wrong where the whole set differs.
    wrong = [set(own) != set(tags) for own, tags in zip(OWN, decided, strict=True)]
    changes = device.refine(Budget(400)).changes
    assert changes.vendor == pytest.approx(100 * np.mean(wrong), abs=2)


def test_sets_are_kept_and_exported(device):
    device.learn(["one", "two", "three", "four"], [["rude", "funny"], (), frozenset(), None])
    assert [row.label for row in device.examples()][-4:] == [{"funny", "rude"}, set(), set(), None]
    assert [row.example for row in device.examples(label={"rude", "funny"})][-1] == "one"
    with pytest.raises(DataError, match="is not of the model, which has tags"):
        device.examples(label={"rude", "vile"})
    stream = io.StringIO()
    device.export_data(stream)
    rows = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [row.get("label") for row in rows[-4:]] == [["funny", "rude"], [], [], None]


def test_a_label_that_is_no_set_of_tags_is_rejected():
    head = make_head(labels=TAGS, link=LINK)
    for label, words in (
        ("rude", "that of example 1 is a str"), (1, "an int"), ({"rude": 1}, "a dict"),
        (iter(["rude"]), "a list_iterator"), (b"rude", "a bytes"),
        ({"rude", "vile"}, "not one of funny, rude, short"),
        ([["rude"]], "not one of funny, rude, short"),
        (np.array(3), "that of example 1 is an ndarray"),
    ):  # fmt: skip
        with pytest.raises(DataError, match=words):
            head.label_shares([{"rude"}, label])


# What tags do not have


def test_a_release_of_other_tags_or_of_labels_is_rejected(tmp_path, device, releases):
    bundle = Bundle.open(releases["mid"])
    dimension = bundle.manifest.dimension
    more = make_head(labels=(*TAGS, "long"), link=LINK, dimension=dimension)
    for head in (more, make_head(labels=TAGS, dimension=dimension)):
        write_release(tmp_path / "other.fala", bundle, head, {})
        with pytest.raises(
            BundleMismatchError, match=r"this device does .*tags funny, rude, short"
        ):
            device.replace(tmp_path / "other.fala")


def test_what_is_for_exclusive_labels_rejects_tags(tmp_path, device, releases, plain):
    with pytest.raises(DataError, match="positive is for labels that exclude"):
        device.positive  # noqa: B018
    with pytest.raises(DataError, match="threshold is for labels that exclude"):
        device.predict(PROBES, threshold=0.5)
    with pytest.raises(DataError, match="positive is for labels that exclude one another"):
        Device.create(tmp_path / "other", plain["old"], positive="rude")
    head = Bundle.open(plain["old"]).head()
    with pytest.raises(BundleFormatError, match="a matcher must have one logit"):
        Head("matching", TAGS, head.weight, head.bias, link=LINK)
    with pytest.raises(DataError, match="add_words is for labels that exclude"):
        add_words(head, Bundle.open(releases["old"]).head().lexical, PROBES, TRUTH, {})
