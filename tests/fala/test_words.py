"""The learned weights of n-grams are carried over every replacement."""

import numpy as np
import pytest

import word_releases
from bridged import add_learned_bridge
from devices import embedded, loss, same, sql, state
from fala import Budget, Bundle, Device, DeviceError
from fala.model.scales import Scales
from fala.personal.run import PASSES
from fala.text.ngrams import BUCKETS
from fala_export import write_release
from word_releases import LABELS, PERSONAL, PROBES, SHARED, TEXTS, TRUTH, UNKNOWN

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def unbridged(tmp_path_factory):
    return word_releases.write_releases(tmp_path_factory.mktemp("unbridged"))


@pytest.fixture(scope="module")
def releases(tmp_path_factory, unbridged):
    return word_releases.with_bridges(unbridged, tmp_path_factory.mktemp("words"))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "device"


@pytest.fixture
def device(path, releases):
    """A device that has learned nothing yet."""
    with Device.create(path, releases["old"]) as device:
        yield device


def vendor_loss(release, folder, truth=TRUTH, probes=PROBES):
    """Return the loss of a release's own model."""
    with Device.create(folder, release) as device:
        return loss(device, truth, probes)


# Prediction and learning


def test_a_word_that_the_backbone_does_not_know_is_learned(device, releases):
    with_word = [f"{UNKNOWN} {text}" for text in PROBES]
    # The backbone encodes both alike.
    backbone = Bundle.open(releases["old"]).backbone()
    np.testing.assert_array_equal(backbone.encode(with_word), backbone.encode(PROBES))

    def gap():
        return (device.predict_proba(with_word) - device.predict_proba(PROBES))[:, 1].mean()

    before = gap()
    texts = [f"{UNKNOWN} {text}" for text in TEXTS[:60]]
    device.learn([*texts, *TEXTS[60:120]], ["1"] * 60 + ["0"] * 60)
    assert gap() > before + 0.3


def test_learned_word_weights_survive_reopening(device, path):
    vendor = device.model.head.lexical.weight[0]
    report = device.learn(TEXTS, LABELS)
    assert (report.decision, len(report.scales)) == ("personal", 4)
    touched = np.zeros(BUCKETS, dtype=bool)
    touched[device.model.head.ngrams(TEXTS).buckets] = True
    assert (device.model.lexical[0] != vendor)[touched].mean() > 0.9
    # Only the words of the user's texts are stored, and the factor of the others.
    assert len(device.model.ngrams.buckets) <= touched.sum()
    before = state(device)
    with Device.open(path) as again:
        assert same(state(again), before) and len(before) == 4


def test_the_scales_of_a_release_are_those_of_the_number_of_labels(device, releases, tmp_path):
    device.learn(TEXTS[:100], LABELS[:100])
    table = [Scales((bias, 5.0), 0.5, bias, labels=n) for n, bias in ((50, 0.2), (101, 0.4))]
    mid, release = Bundle.open(releases["mid"]), tmp_path / "scales.fala"
    write_release(release, mid, mid.head(), {"scales": [each.to_details() for each in table]})
    add_learned_bridge(releases["old"], release, word_releases.PUBLIC)
    report = device.replace(release, Budget(0))
    assert report.counts.scales == report.instant.counts.scales == (0.2, 5.0, 0.5, 0.2)
    device.learn(TEXTS[100:102], LABELS[100:102])
    assert device.fit().scales == (0.4, 5.0, 0.5, 0.4)


# Replacing


def test_words_are_carried_without_a_bridge(device, path, unbridged, encoded, tmp_path):
    device.learn(TEXTS, LABELS)
    encoded.clear()
    report = device.replace(unbridged["mid"], Budget(0))
    assert len(encoded) == report.counts.probes and report.forward_passes == 0
    assert report.decision == report.instant.decision == "personal"
    assert (report.bridged, report.waiting) == (len(TEXTS), 0)
    before = loss(device, TRUTH, PROBES)
    assert before < 0.8 * vendor_loss(unbridged["mid"], tmp_path / "vendor")
    report = device.refine(Budget(30))
    # Passes go where the fit is undecided: nothing is clustered.
    assert report.forward_passes == len(embedded(path, unbridged["mid"])) == 30
    assert report.counts.clusters == 0 and loss(device, TRUTH, PROBES) < before + 0.02
    report = device.replace(unbridged["new"])
    assert 0 < report.forward_passes <= PASSES


def test_replacement_by_a_release_without_words_and_back(device, unbridged, tmp_path):
    silent = word_releases.with_bridges(unbridged, tmp_path, silent=("mid",))
    device.learn(TEXTS, LABELS)
    report = device.replace(silent["mid"], Budget(0))
    assert (report.decision, len(report.counts.scales)) == ("personal", 3)
    without = loss(device, TRUTH, PROBES)
    assert without < vendor_loss(silent["mid"], tmp_path / "vendor")
    # The user's texts are kept: the next release fits its words to them.
    report = device.replace(silent["new"], Budget(0))
    assert (report.decision, len(report.counts.scales)) == ("personal", 4)
    assert loss(device, TRUTH, PROBES) < without - 0.03


def test_a_matcher_learns_the_candidate_and_its_words(path, tmp_path):
    unbridged = word_releases.write_releases(tmp_path / "plain", "matching", ages=("old", "mid"))
    releases = word_releases.with_bridges(unbridged, tmp_path)
    examples = word_releases.matches(220, TEXTS, seed=3)
    probes = word_releases.matches(120, PROBES, seed=4)
    labels, truth = (word_releases.labels_of(each, SHARED, PERSONAL) for each in (examples, probes))
    with Device.create(path, releases["old"]) as device:
        assert len(device.model.head.parts) == 2
        # u * v, the candidate itself, its words, the slope and the bias.
        assert len(device.learn(examples, labels).scales) == 5
        report = device.replace(releases["mid"], Budget(0))
        assert (report.decision, len(report.counts.scales)) == ("personal", 5)
        of_vendor = vendor_loss(releases["mid"], tmp_path / "vendor", truth, probes)
        assert loss(device, truth, probes) < 0.8 * of_vendor


def test_without_texts_words_are_not_fitted(path, unbridged):
    """The vendor's weights are only scaled: they depend on no text."""
    with Device.create(path, unbridged["old"], keep_text="never") as device:
        before = loss(device, TRUTH, PROBES)
        device.learn(TEXTS, LABELS)
        assert loss(device, TRUTH, PROBES) < before
        silent, vendors = device.model.lexical, device.model.head.lexical.weight
        slope = silent[vendors != 0] / vendors[vendors != 0]
        np.testing.assert_allclose(slope, slope.mean(), rtol=1e-4)
        assert not silent[vendors == 0].any()
        assert device.replace(unbridged["mid"], Budget(0)).decision == "vendor"


@pytest.mark.parametrize(
    "damage",
    [
        "buckets = x'0100'",  # fewer than there are weights
        "lexical = x'0000'",
        "buckets = NULL",
        "buckets = NULL, lexical = NULL",
        "lexical = CAST(substr(lexical, 5) || x'0000c07f' AS BLOB)",  # NaN
    ],
)
def test_damaged_word_weights_are_reported(device, path, damage):
    device.learn(TEXTS[:40], LABELS[:40])
    device.close()
    sql(path, f"UPDATE slots SET {damage}")
    with pytest.raises(DeviceError, match="slot a is damaged"):
        Device.open(path)
