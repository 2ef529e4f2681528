"""Stores of version 8 of the schema, whose texts were read with a mixture of a release's prompts.

``data/mixed8.zip`` is such a device: it has learned 60 labels, mixed its release's prompts by them,
and confirmed the mixture, which is in slot b. Slot a is the same release without a prompt.
"""

import shutil
import sqlite3

import numpy as np
import pytest

from adapter_releases import TEXTS
from checkout import SUPPORT
from devices import sql
from fala import Budget, Device


@pytest.fixture
def mixed(tmp_path):
    shutil.unpack_archive(SUPPORT / "data" / "mixed8.zip", tmp_path / "mixed")
    for path in [tmp_path / "mixed", *(tmp_path / "mixed").rglob("*")]:
        path.chmod(0o700 if path.is_dir() else 0o600)
    assert sql(tmp_path / "mixed", "SELECT length(prompt) FROM slots") == [(None,), (24,)]
    return tmp_path / "mixed"


def assert_fitted_without_mixture(folder):
    """The device is fitted again to all labels, with embeddings without a prompt."""
    with Device.open(folder) as device:
        now = device.predict_proba(TEXTS)
        assert [row.label for row in device.examples()].count(None) == 0
        assert len(list(device.examples())) == 60
        assert device.refine(Budget(200)).forward_passes == 0
        device.rollback()  # the other slot has the same labels
        np.testing.assert_allclose(device.predict_proba(TEXTS), now, atol=1e-6)
        assert np.ptp(now[:, 1]) > 0.01 and not device.model.is_vendor
    assert Device.examine(folder).whole
    with Device.open(folder) as device:
        np.testing.assert_array_equal(device.predict_proba(TEXTS), now)
        device.learn(TEXTS[60:61], ["1"])
        assert not np.array_equal(device.predict_proba(TEXTS), now)


def test_the_active_slot_is_fitted_again_without_the_mixture(mixed):
    assert Device.examine(mixed).whole
    assert_fitted_without_mixture(mixed)


def test_the_previous_slot_is_fitted_again_after_a_rollback(mixed):
    with sqlite3.connect(mixed / "store.sqlite3") as db:
        db.execute("UPDATE active SET slot = 'a', previous = 'b'")
    db.close()
    with Device.open(mixed) as device:
        before = device.predict_proba(TEXTS)
        device.rollback()
        np.testing.assert_allclose(device.predict_proba(TEXTS), before, atol=1e-6)
    assert_fitted_without_mixture(mixed)


def test_forgetting_works_in_both_slots(mixed):
    with Device.open(mixed) as device:
        device.forget(where=lambda row: row.example == TEXTS[59])
        now = device.predict_proba(TEXTS)
        device.rollback()
        np.testing.assert_allclose(device.predict_proba(TEXTS), now, atol=1e-6)
        assert len(list(device.examples())) == 59


def test_a_damaged_store_is_repaired(mixed):
    sql(mixed, "INSERT INTO logits VALUES (999, 'model', x'00')")  # an example that is not there
    report = Device.repair(mixed)
    assert report.whole and report.aside and report.lost == 0 and report.examples == 60
    assert_fitted_without_mixture(mixed)
