"""A replacement that leaves a user worse off is told, and can be refused."""

import numpy as np
import pytest

from bridged import PROBES, TEXTS
from devices import same, state
from fala.device import Device
from fala.errors import FalaError, WorseModelError
from fala.personal.budget import Budget


def test_what_answered_before_is_told_beside_what_answers(device, releases):
    report = device.replace(releases["mid"], Budget(0))
    again = device.learn([])
    assert report.losses[report.decision] == pytest.approx(again.loss, abs=1e-6)
    assert report.old_loss is not None
    assert report.worse == (report.losses[report.decision] > report.old_loss)
    newer = device.replace(releases["new"], Budget(0))
    assert newer.old_loss == pytest.approx(again.loss, abs=1e-6)


def test_a_worse_model_is_refused_where_the_app_says_so(device, path, blunt, encoded):
    before = state(device)
    with pytest.raises(WorseModelError, match=r'worse for this user.*accept="always"') as caught:
        device.replace(blunt, Budget(10), accept="better-than-old")
    assert isinstance(caught.value, FalaError) and str(blunt) in str(caught.value)
    # Nothing was paid, and nothing changed.
    assert encoded == [] and not device.can_roll_back
    assert same(state(device), before)
    with Device.open(path) as again:
        assert same(state(again), before)
    assert len(list((path / "bundles").iterdir())) == 1


def test_what_is_no_worse_is_let_in(tmp_path, blunt, releases, labels):
    with Device.create(tmp_path / "device", blunt) as device:
        before = device.learn(TEXTS, labels).loss
        report = device.replace(releases["mid"], Budget(60), accept="better-than-old")
        assert report.losses[report.decision] < report.old_loss == pytest.approx(before, abs=1e-6)
        assert not report.worse and device.name == "mid"


def test_a_user_of_whom_nothing_is_known_is_not_worse_off(tmp_path, releases, blunt):
    with Device.create(tmp_path / "device", releases["old"]) as device:
        device.learn(TEXTS[:3])
        report = device.replace(blunt, Budget(0), accept="better-than-old")
        assert (report.old_loss, report.worse) == (None, False)
        assert np.isfinite(device.predict(PROBES)).all()
