"""An app's tests get fixtures from pytest."""

import errno
import time

import pytest

import fala
from fala.testing import LABELS, Clock, labels_of, texts

TEXTS = texts()[:30]


def test_releases_are_real(fala_releases, fala_device):
    assert set(fala_releases) == {"glove", "glove 2", "bert", "bert without a bridge"}
    device = fala_device("glove", TEXTS, labels_of(TEXTS))
    assert device.labels == LABELS
    assert sorted(map(str, {each.label for each in device.examples()})) == sorted(LABELS)
    report = device.replace(fala_releases["bert"], fala.Budget(0))
    assert (report.new, report.forward_passes) == ("bert", 0)
    assert fala_device().status().release == "glove"
    assert fala_device(fala_releases["bert without a bridge"]).status().release == "bert"
    with pytest.raises(fala.FalaError):
        fala_device("no such release")


def test_the_clock_sets_the_times_of_examples(fala_clock, fala_device):
    fala_clock.set(1_000_000.0)
    device = fala_device()
    device.remember(["early"], ["fine"])
    fala_clock.forward(days=2, minutes=1)
    device.remember(["late"], ["rude"])
    assert [each.added for each in device.examples()] == [1_000_000.0, 1_172_860.0]
    with pytest.raises(fala.DataError, match="forward"):
        fala_clock.forward(-1)


def test_the_clock_ends_a_budget(fala_clock, fala_device, fala_releases):
    def passes(progress):
        device = fala_device("glove", TEXTS, labels_of(TEXTS))
        budget = fala.Budget(seconds=85)
        release = fala_releases["bert without a bridge"]
        return device.replace(release, budget, progress=progress).forward_passes

    slow = passes(lambda stage, done, total: fala_clock.forward(seconds=10))
    assert 0 < slow < passes(None)


def test_the_real_time_returns_after_the_clock():
    with Clock(start=0.0).ticking():
        assert time.time() == 0.0
    before = time.perf_counter(), time.time()
    time.sleep(0.01)
    assert time.perf_counter() > before[0] and time.time() > before[1]


def test_a_full_disk_does_not_change_the_device(fala_folder, fala_releases, fala_failing_disk):
    folder = fala_folder("glove", TEXTS, labels_of(TEXTS))
    with fala_failing_disk(folder, 3, errno.ENOSPC) as fault, fala.Device.open(folder) as device:
        before = device.predict_proba(TEXTS)
        with pytest.raises(fala.DeviceError):
            device.replace(fala_releases["bert"])
        assert fault.failed
    with fala.Device.open(folder) as device:
        assert (device.predict_proba(TEXTS) == before).all()
        assert device.replace(fala_releases["bert"]).new == "bert"
