"""Devices whose labels do not exclude one another: sets of tags."""

import io
import json

import numpy as np
import pytest

import tagged
from checkout import SUPPORT
from devices import refine_all
from fala import (
    Budget,
    BundleFormatError,
    BundleMismatchError,
    DataError,
    Device,
)
from fala.bundle.reading import Bundle
from fala.model.heads import Head
from fala.model.links import TAGS as LINK
from fala_export import write_external, write_release
from fala_export.fit.heads import fit_head
from fala_export.fit.words import add_words
from hostile_bundles import Changes, repack
from tagged import OWN, TAGS, TRUTH, loss
from word_releases import PROBES, PUBLIC, SHARED, TEXTS


@pytest.fixture(scope="module")
def releases(tmp_path_factory):
    return tagged.write_releases(tmp_path_factory.mktemp("tagged"))


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
        ([{"a"}, {"a", "b"}, {"a"}], None, "tag 1 of 2 is of all rows"),
        ([{"a"}, set(), set()], ["a", "b"], "tag 2 of 2 is of no row"),
        ([set(), [], ()], None, "no row has a tag: a head needs rows with a tag"),
        ([{"a"}, np.array("a"), set()], None, "that is an ndarray"),
        ([{"a"}, None, set()], None, "an empty set, not None"),
        ([{"a"}, {"c"}, set()], ["a"], "a tag of example 1 is a text of 1 character, not one of a"),
        ([{"a"}, "a", set()], None, "a set of tags, as {'a', 'b'}, or None; that is a str"),
        ([{"a"}, {"a": True}, set()], None, "that is a dict"),
    ],
)
def test_wrong_sets_are_rejected(sets, names, words):
    with pytest.raises(DataError, match=words):
        fit_head(np.eye(3), sets, label_names=names, exclusive=False)


def test_tags_of_this_format_version_open():
    # Never written again, as long as the format version stays.
    bundle = Bundle.open(SUPPORT / "data" / "tags.fala")
    head = bundle.head()
    assert (head.labels, head.link) == (("funny", "rude"), LINK)
    np.testing.assert_array_equal(head.weight[:, :2], [[1, -2], [0.5, 3]])
    assert bundle.head_digest.startswith("f59f74ff94738a9b")


def test_a_forged_kind_is_rejected(tmp_path, releases):
    details = Bundle.open(releases["old"]).manifest.details
    rating = {"low": 1.0, "high": 5.0, "noise": 1.0}
    for forged in ({"exclusive": 0}, {"exclusive": None}, {"exclusive": "no"}, {"rating": rating}):
        manifest = {"details": {**details, **forged}}
        repack(releases["old"], tmp_path / "x.fala", Changes(manifest=manifest))
        with pytest.raises(BundleFormatError, match="exclusive is neither true nor false, or"):
            Bundle.open(tmp_path / "x.fala")


# The device


def life(folder, releases, labels):
    """p after every step; every text is encoded before some are forgotten."""
    p = []
    with Device.create(folder, releases["old"]) as device:
        some_labels = [None if at % 5 == 4 else label for at, label in enumerate(labels[:120])]
        device.learn(TEXTS[:120], some_labels)
        p.append(device.predict_proba(PROBES))
        device.replace(releases["mid"], Budget(0))
        p.append(device.predict_proba(PROBES))
        refine_all(device)
        p.append(device.predict_proba(PROBES))
        device.forget(where=lambda row: row.example in TEXTS[::9])
        p.append(device.predict_proba(PROBES))
        device.rollback()
        p.append(device.predict_proba(PROBES))
    return p


def test_each_tag_equals_a_device_of_two_labels(tmp_path, plain):
    """One device of three tags equals three devices of two labels."""
    whole = life(tmp_path / "device", plain, OWN)
    for column, tag in enumerate(TAGS):
        single = tagged.write_tag(tmp_path / f"{tag}-releases", plain, tag)
        labels = [int(tag in tags) for tags in OWN]
        alone = life(tmp_path / tag, single, labels)
        for p, expected in zip(whole, alone, strict=True):
            np.testing.assert_allclose(p[:, column], expected[:, 1], atol=1e-6)
    assert np.ptp(whole[0], axis=1).mean() > 0.1


def test_sets_are_of_the_tags_above_one_half(device):
    p = device.predict_proba(PROBES)
    assert p.shape == (len(PROBES), 3)
    assert np.abs(p.sum(axis=1) - 1).max() > 0.1
    decided = device.predict(PROBES).tolist()
    assert decided == [frozenset(np.array(TAGS)[row]) for row in p > 0.5]
    right = np.mean(tagged.shares_of(decided) == tagged.shares_of(TRUTH))
    assert right > 0.75
    with pytest.raises(DataError, match="positive is for labels that exclude"):
        device.positive  # noqa: B018
    with pytest.raises(DataError, match="threshold is for labels that exclude"):
        device.predict(PROBES, threshold=0.5)


def test_a_replacement_carries_over_the_tags(tmp_path, device, releases):
    with Device.create(tmp_path / "vendor", releases["mid"]) as vendor:
        of_vendor = loss(vendor)
    preview = device.preview(releases["mid"])
    report = device.replace(releases["mid"], Budget(40), accept="better-than-old")
    assert preview.decision == report.decision == "personal"
    assert report.comparison.vendor > report.comparison.carried
    assert report.comparison.measure == "cross-entropy, summed over the tags,"
    assert report.counts.agreement > 0.5
    assert json.dumps(report.to_dict())
    assert loss(device) < 0.9 * of_vendor
    device.refine(Budget(400))
    assert loss(device) < 0.9 * of_vendor
    before = device.predict_proba(PROBES)
    device.rollback()
    device.rollback()
    np.testing.assert_array_equal(device.predict_proba(PROBES), before)


def test_sets_are_kept_and_exported(device):
    device.learn(["one", "two", "three", "four"], [["rude", "funny"], (), frozenset(), None])
    rows_of = {row.example: row for row in device.examples()}
    assert [rows_of[text].label for text in ("one", "two", "three", "four")] == [
        {"funny", "rude"}, set(), set(), None,
    ]  # fmt: skip
    assert [row.example for row in device.examples(label={"rude", "funny"})][-1] == "one"
    with pytest.raises(DataError, match="is not of the model, which has tags"):
        device.examples(label={"rude", "vile"})
    stream = io.StringIO()
    device.export_data(stream)
    rows = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [row.get("label") for row in rows[-4:]] == [["funny", "rude"], [], [], None]


@pytest.mark.parametrize(
    ("label", "words"),
    [
        ("rude", "that of example 1 is a str"), (1, "an int"), (0.5, "a float"), (True, "a bool"),
        ({"rude": 1}, "a dict"), (iter(["rude"]), "a list_iterator"), (b"rude", "a bytes"),
        ({"rude", "vile"}, "not one of funny, rude, short"),
        ([["rude"]], "not one of funny, rude, short"),
        (np.array(3), "that of example 1 is an ndarray"),
    ],
)  # fmt: skip
def test_a_label_that_is_no_set_of_tags_is_rejected(device, label, words):
    count = len(list(device.examples()))
    with pytest.raises(DataError, match=words):
        device.learn(["a", "b"], [{"rude"}, label])
    assert len(list(device.examples())) == count


def test_candidates_are_ranked_by_a_tag(device):
    p = device.predict_proba(PROBES)[:, 1]
    assert device.rank(PROBES, label="rude", top=1) == [(PROBES[p.argmax()], p.max())]
    with pytest.raises(DataError, match="pass label=, one of funny, rude, short"):
        device.rank(PROBES)


# Functions that reject tags


def test_a_release_of_other_tags_or_of_labels_is_rejected(tmp_path, device, releases):
    bundle = Bundle.open(releases["mid"])
    sets = [
        {*tags, *(["long"] if at % 3 else [])}
        for at, tags in enumerate(tagged.sets_of(PUBLIC, SHARED))
    ]
    more = fit_head(bundle.backbone(), PUBLIC, sets, exclusive=False)
    write_release(tmp_path / "more.fala", bundle, more, {})
    names = [TAGS[at % 3] for at in range(len(PUBLIC))]
    write_release(tmp_path / "labels.fala", bundle, fit_head(bundle.backbone(), PUBLIC, names), {})
    for name in ("more", "labels"):
        with pytest.raises(
            BundleMismatchError, match=r"this device does .*tags funny, rude, short"
        ):
            device.replace(tmp_path / f"{name}.fala")


def test_functions_for_exclusive_labels_reject_tags(tmp_path, releases, plain):
    bundle = Bundle.open(plain["old"])
    head = bundle.head()
    with pytest.raises(DataError, match="positive is for labels that exclude one another"):
        Device.create(tmp_path / "device", plain["old"], positive="rude")
    with pytest.raises(BundleFormatError, match="a matcher has one logit"):
        Head("matching", TAGS, head.weight, head.bias, link=LINK)
    vendor_lexical = Bundle.open(releases["old"]).head().lexical
    with pytest.raises(DataError, match="add_words is for labels that exclude"):
        add_words(head, vendor_lexical, PROBES, TRUTH, {})
