"""A refinement improves a replacement, batch by batch."""

import os

import numpy as np
import pytest

import bridged
from bridged import TEXTS
from devices import embedded, refine_all, same, state
from fala import Budget, DataError, Device, Stopped
from fala.backbones import OnnxEncoder
from fala.personal.refine import BATCH

pytestmark = pytest.mark.slow


@pytest.mark.skipif(not hasattr(os, "pipe2"), reason="a system without /proc")
def test_a_refinement_without_a_free_file_descriptor(device, releases):
    """The process's memory cannot be read then, but the files that it needs are open."""
    resource = pytest.importorskip("resource")
    device.replace(releases["mid"], Budget(1))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.open(os.devnull, os.O_RDONLY)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            os.open(os.devnull, os.O_RDONLY)
        assert device.refine(Budget(10)).forward_passes == 10
        assert device.fit().labelled == len(TEXTS)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_refinement_resumes_where_it_stopped(device, path, releases, encoded):
    device.replace(releases["mid"], Budget(0))
    done = []
    for passes in (10, 20, 0, 17):
        encoded.clear()
        report = device.refine(Budget(passes))
        assert len(encoded) == report.forward_passes == passes
        assert not set(encoded) & set(done)
        done += encoded
        assert embedded(path, releases["mid"]) == set(done)
        assert report.counts.representatives == len(done)
        assert (report.old, report.new) == ("mid", "mid")
        assert report.decision == "personal"
    before = state(device)
    report = device.refine(Budget(seconds=0))
    assert (report.forward_passes, report.stopped) == (0, Stopped.TIME)
    with Device.open(path) as again:
        assert same(state(again), before)
    refine_all(device)
    assert embedded(path, releases["mid"]) == set(TEXTS)
    before, report = state(device), device.refine()
    assert (report.forward_passes, report.stopped) == (0, Stopped.ALL_ENCODED)
    assert report.counts.representatives == report.examples == len(TEXTS)
    assert same(state(device), before)


def test_a_replacement_refines_within_its_budget(device, path, releases, encoded):
    steps = []

    def progress(*event):
        count = len(encoded)
        steps.append((event, device.status().release, state(device)))
        del encoded[count:]

    report = device.replace(releases["mid"], Budget(40), progress=progress)
    assert report.forward_passes == len(encoded) - report.counts.probes <= 40
    assert embedded(path, releases["mid"]) == set(encoded[report.counts.probes :])
    batches = [(25, 25), (15, 15)] if report.forward_passes == 40 else [(25, 25)]
    events = [("open", 0, 1), ("read", 0, 1), ("solve", 0, 1), ("check", 0, 1), ("commit", 0, 1)]
    done = 0
    events.append(("commit", 1, 1))
    for count, total in batches:
        done += count
        events += [("forward", count, total), ("refine", done, 40)]
    assert BATCH == 25 and [event for event, _, _ in steps] == events
    assert [name for _, name, _ in steps] == ["old"] * 5 + ["mid"] * (len(steps) - 5)
    # The first model is active while the first batch is encoded.
    assert same(steps[5][2], steps[6][2]) and not same(steps[6][2], steps[7][2])
    assert same(steps[-1][2], state(device))
    assert report.instant.losses["personal"] != report.losses["personal"]


def test_a_refinement_stops_when_a_batch_changes_little(tmp_path, encoded):
    # Words of one token each, nearly linear: the bridge predicts the new embeddings closely.
    plain = [word for word in bridged.WORDS if word.isalpha()]
    random = np.random.default_rng(5)
    texts = [" ".join(random.choice(plain, size=6)) for _ in range(400)]
    releases = bridged.write_releases(tmp_path, bridges=False, scale=0.05)
    bridged.add_learned_bridge(releases["old"], releases["mid"], texts[100:])
    with Device.create(tmp_path / "device", releases["old"]) as device:
        device.learn(texts[:100], bridged.planted_labels(releases["old"], texts[:100]))
        encoded.clear()
        report = device.replace(releases["mid"], Budget(90))
        assert report.stopped is Stopped.SETTLED
        assert report.forward_passes == len(encoded) - report.counts.probes == BATCH
        instant = report.instant.losses["personal"]
        assert report.losses["personal"] == pytest.approx(instant, abs=0.01)


def test_an_error_while_refining_leaves_the_last_model(device, path, releases, monkeypatch):
    device.replace(releases["mid"], Budget(10))
    before, original = state(device), OnnxEncoder.encode
    with monkeypatch.context() as patch:
        patch.setattr(OnnxEncoder, "encode", lambda self, texts: original(self, texts) * 1e6)
        with pytest.raises(DataError, match="float16"):
            device.refine(Budget(10))
    assert same(state(device), before)
    with Device.open(path) as again:
        assert same(state(again), before)
    assert device.refine(Budget(10)).forward_passes == 10


@pytest.mark.parametrize("age", ["old", "mid"])
def test_a_device_that_was_never_replaced_has_nothing_to_refine(tmp_path, releases, encoded, age):
    with Device.create(tmp_path / "device", releases[age]) as device:
        assert device.refine(Budget(5)).forward_passes == 0
        device.learn(TEXTS[:20], ["0", "1"] * 10)
        before = state(device)
        encoded.clear()
        report = device.refine(Budget(5))
        assert (encoded, report.forward_passes) == ([], 0)
        assert same(state(device), before)
