"""Learning encodes beside others that write, in steps that are kept, and can be cancelled."""

import threading
import time

import numpy as np
import pytest

import bridged
from bridged import PROBES, TEXTS
from devices import embedded
from fala.device import Device
from fala.personal.encode import KEPT_CHUNK
from fala.personal.run import Budget

MANY = [f"{first} {second}" for first in TEXTS[:20] for second in TEXTS[20:30]]


@pytest.fixture
def device(tmp_path, releases):
    with Device.create(tmp_path / "device", releases["mid"]) as device:
        yield device


@pytest.fixture(scope="module")
def given(releases):
    return bridged.planted_labels(releases["old"], MANY)


def test_a_cancelled_encoding_keeps_what_it_has(device, tmp_path, releases, given):
    seen = []

    def progress(stage, done, total):
        seen.append((stage, done, total))
        return len(seen) < 2

    report = device.learn(MANY, given, progress=progress)
    assert seen == [("forward", KEPT_CHUNK, 200), ("forward", 2 * KEPT_CHUNK, 200)]
    assert (report.examples, report.labelled, report.waiting) == (200, 200, 200 - 2 * KEPT_CHUNK)
    assert embedded(tmp_path / "device", releases["mid"]) == {*MANY[: 2 * KEPT_CHUNK]}
    refined = device.refine(Budget(200))
    assert refined.forward_passes == 200 - 2 * KEPT_CHUNK
    assert device.fit().waiting == 0


def test_an_interrupt_keeps_the_embeddings_so_far(device, tmp_path, releases, given):
    def progress(stage, done, total):
        if done > KEPT_CHUNK:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        device.learn(MANY, given, progress=progress)
    assert [row.example for row in device.examples(labelled=True)] == MANY
    assert embedded(tmp_path / "device", releases["mid"]) == {*MANY[: 2 * KEPT_CHUNK]}
    assert device.learn(MANY, given).waiting == 0


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
    thread = threading.Thread(target=device.learn, args=(MANY[:3], given[:3]))
    thread.start()
    assert started.wait(10)
    with Device.open(tmp_path / "device") as other:
        user = device if second == "the same object" else other
        begun = time.perf_counter()
        assert user.learn(MANY[10:13], given[10:13]).labelled == 6
        assert np.isfinite(user.predict_proba(PROBES)).all()
        assert time.perf_counter() - begun < 5
        assert thread.is_alive()
        ended.set()
        thread.join()
    report = device.fit()
    assert (report.fitted, report.waiting) == (6, 0)
