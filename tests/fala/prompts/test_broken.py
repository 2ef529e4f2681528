"""Prompts, killed processes and damaged stores: all old, all new, and said where it is neither."""

import sqlite3

import numpy as np
import pytest

from adaptable import TEXTS
from devices import sql
from fala import Device, DeviceError
from fala.testing import PowerCuts
from promptable import is_new, mix


@pytest.mark.parametrize(("unsynced", "count"), [("lost", None), ("some", 3)])
def test_killed_at_every_end_of_something(learned, taken, tmp_path, unsynced, count):
    cuts = PowerCuts(mix, learned, scratch=tmp_path)
    kinds = {"sync", "rename", "delete"} if count is None else None
    ends = cuts.at_operations(kinds, count=count, unsynced=unsynced)
    found = [is_new(cut.folder, *taken[1:3]) for cut in ends]
    assert found == sorted(found) and (count or set(found) == {False, True})


def damaged(folder, weights):
    with sqlite3.connect(folder / "store.sqlite3") as db:
        db.execute("UPDATE slots SET prompt = ? WHERE prompt IS NOT NULL", (weights,))
    db.close()


@pytest.mark.parametrize(
    ("weights", "why"),
    [
        ([0.5, 0.5], "2 weights for 3 prompts"),
        ([0.25] * 9, "9 weights of prompts"),
        ([0.5, 0.6, 0.0], "the sum 1.1"),
        ([1.5, -0.5, 0.0], "below 0"),
        ([np.nan, 0.5, 0.5], "not finite"),
        ([0.0, 1.0, 0.0], "the prompt, is not the bundle's"),
        ([], "0 weights"),
        ("text", "bytes expected"),
        (None, "the prompt, is not the bundle's"),
    ],
    ids=lambda value: None if not isinstance(value, str) else value,
)
def test_weights_that_are_not_what_was_kept(prompted, taken, weights, why):
    raw = np.array(weights, "<f8").tobytes() if isinstance(weights, list) else weights
    with Device.open(prompted) as device:
        device.confirm()
    damaged(prompted, raw)
    found = Device.examine(prompted)
    assert not found.whole and why in found.slots["b"]
    with pytest.raises(DeviceError, match=r"slot b is damaged.*fala-device doctor"):
        Device.open(prompted)
    report = Device.repair(prompted)
    assert report.whole and report.answers == "a" and not report.fit
    with Device.open(prompted) as device:
        np.testing.assert_array_equal(device.predict(TEXTS), taken[1])


def test_one_on_trial_gives_way_by_itself(prompted, taken):
    damaged(prompted, np.array([0.0, 1.0, 0.0]).tobytes())
    with Device.open(prompted) as device:
        np.testing.assert_array_equal(device.predict(TEXTS), taken[1])
        assert "prompt" in device.fell_back and not device.can_roll_back


def test_a_store_that_is_written_anew_keeps_it(prompted, taken):
    with Device.open(prompted) as device:
        device.confirm()
    sql(prompted, "PRAGMA user_version = 3")
    report = Device.repair(prompted)
    assert report.whole and report.aside and not report.fit
    with Device.open(prompted) as device:
        np.testing.assert_array_equal(device.predict(TEXTS), taken[2])
        device.rollback()
        np.testing.assert_array_equal(device.predict(TEXTS), taken[1])


def test_a_slot_without_its_models_keeps_going(prompted, taken):
    """Both slots' weights are gone: the vendor's model is fitted again, without a prompt."""
    with sqlite3.connect(prompted / "store.sqlite3") as db:
        db.execute("UPDATE slots SET weight = x'00'")
    db.close()
    assert Device.repair(prompted).fit
    with Device.open(prompted) as device:
        np.testing.assert_allclose(device.predict(TEXTS), taken[1], atol=1e-6)
