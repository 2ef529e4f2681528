"""Learning adds labels to the last fit, and encodes texts in steps, beside other writers."""

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import bridged
from bridged import PROBES, TEXTS
from devices import embedded, sql
from fala import Budget, Device
from fala.personal.encode import KEPT_CHUNK
from fala.slots.folder import Task

MANY = [f"{first} {second}" for first in TEXTS[:20] for second in TEXTS[20:36]]
#: The examples of a fit to which others are added.
COUNT = 300


@pytest.fixture
def device(tmp_path, releases):
    with Device.create(tmp_path / "device", releases["mid"]) as device:
        yield device


@pytest.fixture(scope="module")
def given(releases):
    return bridged.planted_labels(releases["old"], MANY)


# Adding to the last fit


@pytest.fixture
def fitted(tmp_path, releases, given):
    """The folder of a device whose labels were all fitted at once."""
    with Device.create(tmp_path / "fitted", releases["old"]) as device:
        assert device.learn(MANY[:COUNT], given[:COUNT]).exact
    return tmp_path / "fitted"


def test_a_further_label_is_added_to_the_last_fit(fitted, given):
    with Device.open(fitted) as device:
        report = device.learn(MANY[COUNT : COUNT + 3], given[COUNT : COUNT + 3])
        assert not report.exact and report.fitted == COUNT + 3
        added = device.predict_proba(PROBES)
        # A changed label counts, the earlier one no longer does, and the example counts once.
        report = device.learn(MANY[:1], ["10"[int(given[0])]])
        assert not report.exact and report.fitted == report.labelled == COUNT + 3
        assert np.abs(device.predict_proba(PROBES) - added).max() > 1e-3
        assert not device.learn(MANY[:1], given[:1]).exact
        np.testing.assert_allclose(device.predict_proba(PROBES), added, atol=1e-4)
        # A full fit chooses its scales again: the result is close.
        report = device.fit()
        assert report.exact and report.fitted == COUNT + 3
        np.testing.assert_allclose(device.predict_proba(PROBES), added, atol=0.02)


def test_what_others_learned_and_remembered_is_added_with_the_next_label(fitted, given):
    def learn(device, at):
        return device.learn([MANY[at]], [given[at]])

    with Device.open(fitted) as device, Device.open(fitted) as other:
        for at, each in enumerate((device, other, device), start=COUNT):
            assert not learn(each, at).exact
        other.remember([MANY[COUNT + 3]], [given[COUNT + 3]])
        added = learn(device, COUNT + 4)
        encoded = 5 - added.waiting
        assert (added.exact, added.labelled, added.fitted) == (False, COUNT + 5, COUNT + encoded)
        added = learn(device, COUNT + 3)  # encoded now, with the same label
        assert (added.exact, added.waiting, added.fitted) == (False, 0, COUNT + 5)


def test_a_label_whose_commit_failed_counts_with_the_next_fit(fitted, given, monkeypatch):
    with Device.open(fitted) as device:
        with monkeypatch.context() as patch:
            patch.setattr(Task, "commit", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                device.learn(MANY[COUNT : COUNT + 2], given[COUNT : COUNT + 2])
        report = device.learn(MANY[COUNT + 2 : COUNT + 5], given[COUNT + 2 : COUNT + 5])
        # The first two wait for their embeddings, which were not committed either.
        assert (report.fitted, report.waiting, report.exact) == (COUNT + 3, 2, False)
        assert device.fit().fitted == COUNT + 5


def test_a_damaged_record_of_the_last_fit_causes_a_full_fit(fitted, given):
    for change in (
        "data = -1", "mixing = 2", "scales = 'x'", "scales = x'00'", "scales = zeroblob(16)",
        "decision = NULL",
    ):  # fmt: skip
        sql(fitted, f"UPDATE slots SET fit_{change}")
        with Device.open(fitted) as device:
            assert device.learn(MANY[:1], given[:1]).exact


# Encoding beside others


@pytest.mark.parametrize("how", ["cancelled", "interrupted"])
def test_an_encoding_that_ends_early_keeps_what_it_has(device, tmp_path, releases, given, how):
    seen = []

    def progress(stage, done, total):
        seen.append((stage, done, total))
        if len(seen) == 2 and how == "interrupted":
            raise KeyboardInterrupt
        return len(seen) < 2

    with contextlib.suppress(KeyboardInterrupt):
        report = device.learn(MANY[:200], given[:200], progress=progress)
        assert (report.labelled, report.waiting) == (200, 200 - 2 * KEPT_CHUNK)
    assert seen == [("forward", KEPT_CHUNK, 200), ("forward", 2 * KEPT_CHUNK, 200)]
    assert [row.example for row in device.examples(labelled=True)] == MANY[:200]
    assert embedded(tmp_path / "device", releases["mid"]) == {*MANY[: 2 * KEPT_CHUNK]}
    assert device.refine(Budget(200)).forward_passes == 200 - 2 * KEPT_CHUNK
    assert device.fit().waiting == 0


@pytest.mark.parametrize("second", ["the same object", "another process's"])
def test_a_slow_encoder_delays_no_one_else(device, tmp_path, given, monkeypatch, second):
    backbone = type(device._own.snapshot().release.backbone.load())
    encode, started, ended = backbone.encode, threading.Event(), threading.Event()

    def slow(self, texts, *arguments):
        if texts and texts[0] == MANY[0]:
            started.set()
            ended.wait(10)
        return encode(self, texts, *arguments)

    monkeypatch.setattr(backbone, "encode", slow)
    with Device.open(tmp_path / "device") as other, ThreadPoolExecutor(1) as pool:
        learning = pool.submit(device.learn, MANY[:3], given[:3])
        assert started.wait(10)
        user = device if second == "the same object" else other
        assert user.learn(MANY[10:13], given[10:13]).labelled == 6
        assert np.isfinite(user.predict_proba(PROBES)).all()
        assert not learning.done()
        ended.set()
        learning.result()
    report = device.fit()
    assert (report.fitted, report.waiting) == (6, 0)
