"""A device that was fitted to very many examples takes further labels without reading them all."""

import numpy as np
import pytest

import bridged
import spoken
from devices import sql
from fala.device import Device
from fala.personal import learn
from fala.solver import fit as solver
from fala.store.examples import Examples
from spoken import OWN, TASTE

_RANDOM = np.random.default_rng(11)
MANY = [" ".join(_RANDOM.choice(bridged.WORDS, size=6)) for _ in range(640)]
MANY = sorted(set(MANY))[:570]
LABELS = spoken.labels_of(MANY, TASTE, OWN)
KEPT, FURTHER = 560, range(560, 570)


@pytest.fixture(scope="module")
def releases(tmp_path_factory):
    return spoken.write_releases(tmp_path_factory.mktemp("spoken"))


@pytest.fixture(params=["old", "silent"])
def path(tmp_path, releases, request, monkeypatch):
    """A device that knows many labels, closed; a few count as very many."""
    monkeypatch.setattr(solver, "LARGEST", 200)
    monkeypatch.setattr(learn, "LARGEST", 200)
    monkeypatch.setattr(learn, "_SAMPLE", 150)
    release = releases["old"]
    if request.param == "silent":
        release = spoken.write_releases(tmp_path, silent=("old",))["old"]
    with Device.create(tmp_path / "device", release) as device:
        device.learn(MANY[:KEPT], LABELS[:KEPT])
    return tmp_path / "device"


def test_a_label_after_opening_moves_the_model_as_a_fit_of_all_would(path, monkeypatch):
    with Device.open(path) as device:
        before = device.predict(MANY)
        everything = Examples.all

        def some(self, ids=None):
            assert ids is not None, "all examples were read"
            return everything(self, ids)

        monkeypatch.setattr(Examples, "all", some)
        reports = [device.learn([MANY[at]], [LABELS[at]]) for at in FURTHER]
        monkeypatch.setattr(Examples, "all", everything)
        assert [report.exact for report in reports] == [False] * len(FURTHER)
        assert reports[-1].fitted == 570
        after = device.predict(MANY)
        device.fit()
        fitted = device.predict(MANY)
    own = list(FURTHER)
    assert np.abs(after - before).max() > 1e-3
    assert np.abs(fitted - after)[own].mean() < 0.7 * np.abs(fitted - before)[own].mean()


def test_a_label_that_is_changed_after_opening_and_changed_back_leaves_nothing(path):
    with Device.open(path) as device:
        before = device.predict(MANY)
        other = "1" if LABELS[3] == "0" else "0"
        assert not device.learn([MANY[3]], [other]).exact
        moved = np.abs(device.predict(MANY) - before)
        assert moved[3].max() > max(1e-3, 3 * np.median(moved))
        device.learn([MANY[3]], [LABELS[3]])
        assert np.abs(device.predict(MANY) - before).max() < moved.max() / 5


def test_what_was_said_without_a_fit_is_fitted_first(path):
    with Device.open(path) as device:
        device.remember([MANY[560]], [LABELS[560]])
    with Device.open(path) as device:
        assert device.learn([MANY[561]], [LABELS[561]]).exact


def test_a_damaged_record_of_the_fit_costs_a_fit_and_nothing_else(path):
    for change in ("data = -1", "trust = 2", "scales = 'x'", "scales = x'00'", "decision = NULL"):
        sql(path, f"UPDATE slots SET fit_{change}")
        with Device.open(path) as device:
            assert device.learn([MANY[0]], [LABELS[0]]).exact


def test_another_process_goes_on_from_the_record(path):
    with Device.open(path) as one, Device.open(path) as other:
        assert not one.learn([MANY[560]], [LABELS[560]]).exact
        assert not other.learn([MANY[561]], [LABELS[561]]).exact
        report = one.learn([MANY[562]], [LABELS[562]])
        assert not report.exact
        assert report.labelled == 563
