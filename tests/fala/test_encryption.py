"""A device that is encrypted at rest: as any other to who has the key, and nothing to others."""

import os
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest

from bridged import PROBES, TEXTS
from devices import everything, halved, live, same, sql, state
from fala.device import Device
from fala.errors import DataError, DeviceError, FalaError
from fala.personal.budget import Budget

pytestmark = pytest.mark.slow

FIRST, SECOND = bytes(range(32)), bytes(range(32, 64))


def key():
    return FIRST


def other():
    return SECOND


@pytest.fixture
def folder(tmp_path, releases, labels):
    folder = tmp_path / "sealed"
    with Device.create(folder, releases["old"], key=key) as device:
        device.learn(TEXTS, labels)
    return folder


def known(device):
    return [(row.example, row.label) for row in device.examples()]


def test_it_is_a_device_as_any_other(tmp_path, releases, labels):
    with (
        Device.create(tmp_path / "plain", releases["old"]) as plain,
        Device.create(tmp_path / "sealed", releases["old"], key=key) as sealed,
    ):
        expected, answers = (live(one, releases, labels, 20) for one in (plain, sealed))
        assert all(same(one, wanted) for one, wanted in zip(answers, expected, strict=True))
        for one in (plain, sealed):
            one.refine(Budget(5))
        assert known(sealed) == known(plain)
    with (
        Device.open(tmp_path / "plain") as plain,
        Device.open(tmp_path / "sealed", key=key) as sealed,
    ):
        assert same(state(sealed), state(plain)) and known(sealed) == known(plain)
    assert Device.examine(tmp_path / "sealed", key=key).whole


@pytest.mark.parametrize("replaced", [False, True])
def test_nothing_of_the_users_can_be_read(folder, releases, replaced):
    with Device.open(folder, key=key) as device:
        if replaced:
            device.replace(releases["mid"], Budget(20))
        model = device.model
        files = everything(folder)
    for data in (files, everything(folder)):
        for text in TEXTS:
            assert text.encode() not in data
        for array in (*halved(releases["old"], TEXTS).astype("<f2"), model.weight, model.bias):
            assert array.tobytes() not in data
    # Labels are sealed, too: equal ones look different.
    labels = {value for (value,) in sql(folder, "SELECT label FROM examples")}
    assert len(labels) == len(TEXTS) and all(isinstance(value, bytes) for value in labels)


def test_another_key_or_none_changes_nothing(folder, releases, tmp_path):
    with Device.create(tmp_path / "plain", releases["old"]) as plain:
        plain.remember(["a text"], ["1"])
    for wrong, message in ((other, "another key"), (None, "is encrypted; open it with its key")):
        before = sorted(folder.rglob("*")), everything(folder)
        for call in (Device.open, Device.examine, Device.repair):
            with pytest.raises(DeviceError, match=message):
                call(folder, key=wrong)
        assert (sorted(folder.rglob("*")), everything(folder)) == before
    for call in (Device.open, Device.examine, Device.repair):
        with pytest.raises(DeviceError, match="is not encrypted"):
            call(tmp_path / "plain", key=key)
    Device.open(folder, key=key).close()
    Device.open(tmp_path / "plain").close()


@pytest.mark.parametrize(
    "wrong",
    [FIRST, "key", 5, lambda: None, lambda: FIRST[:31], lambda: FIRST.hex(), lambda: b""],
    ids=["bytes", "text", "number", "nothing", "short", "hex", "empty"],
)
def test_what_is_no_key(wrong, folder, tmp_path, releases):
    for call in (
        lambda: Device.create(tmp_path / "new", releases["old"], key=wrong),
        lambda: Device.open(folder, key=wrong),
        lambda: Device.repair(folder, key=wrong),
    ):
        with pytest.raises(DataError, match="32 bytes") as caught:
            call()
        assert FIRST.hex()[:62] not in str(caught.value) and repr(FIRST)[:20] not in str(caught)
    assert not (tmp_path / "new").exists()
    with Device.open(folder, key=key) as device:
        for none in (wrong, None):
            with pytest.raises(DataError, match="key"):
                device.rotate_key(none)
        assert len([*device.examples()]) == len(TEXTS)


def test_a_key_that_cannot_be_had_is_the_apps_own_error(folder):
    def locked():
        raise PermissionError("the key store is locked")

    with pytest.raises(PermissionError, match="locked"):
        Device.open(folder, key=locked)


def test_a_mark_that_is_gone(folder):
    sql(folder, "UPDATE device SET key_mark = NULL")
    with pytest.raises(DeviceError, match="is encrypted; open it with its key"):
        Device.repair(folder)
    with pytest.raises(DeviceError, match="another key"):
        Device.repair(folder, key=other)
    assert Device.repair(folder, key=key).whole
    with pytest.raises(DeviceError, match="another key"):
        Device.open(folder, key=other)
    with Device.open(folder, key=key) as device:
        assert {row.example for row in device.examples()} == {*TEXTS}
    assert TEXTS[20].encode() not in everything(folder)


def test_a_key_is_changed(folder, releases):
    with Device.open(folder, key=key) as device:
        device.replace(releases["mid"], Budget(10))
        before, sealed = state(device), {one for (one,) in sql(folder, "SELECT sealed FROM texts")}
        stranger = Device.open(folder, key=key)
        device.rotate_key(other)
        assert same(state(device), before)
        device.learn(["one more"], ["1"])
        with pytest.raises(FalaError):
            [*stranger.examples()]
        stranger.close()
        after = state(device)
        device.rollback()
        device.rollback()
    with pytest.raises(DeviceError, match="another key"):
        Device.open(folder, key=key)
    with Device.open(folder, key=other) as device:
        assert same(state(device), after)
        assert len([*device.examples()]) == len(TEXTS) + 1
    data = everything(folder)
    assert not any(one in data for one in sealed)


def test_a_device_is_encrypted_afterwards(path, releases):
    with Device.open(path) as device:
        before = state(device)
        assert TEXTS[5].encode() in everything(path)
        device.rotate_key(key)
        assert TEXTS[5].encode() not in everything(path)
    with Device.open(path, key=key) as device:
        assert same(state(device), before)
    with pytest.raises(DeviceError, match="is encrypted"):
        Device.open(path)


def test_a_rotation_that_fails_changes_nothing(folder, monkeypatch):
    before = sql(folder, "SELECT * FROM texts")
    with Device.open(folder, key=key) as device:

        def full(*arguments):
            raise DeviceError("the disk is full")

        with monkeypatch.context() as patch:
            patch.setattr("fala.store.store.Store.write_mark", full)
            with pytest.raises(DeviceError, match="full"):
                device.rotate_key(other)
        assert len([*device.examples()]) == len(TEXTS)
        np.testing.assert_array_equal(device.predict(PROBES), device.predict(PROBES))
    assert sql(folder, "SELECT * FROM texts") == before
    Device.open(folder, key=key).close()


def test_it_is_forgotten_exported_and_erased(folder, tmp_path):
    with Device.open(folder, key=key) as device:
        sealed = dict(sql(folder, "SELECT id, sealed FROM texts"))
        assert device.forget([1, 2]) == 2
        left = {row for (row,) in sql(folder, "SELECT id FROM texts")}
        data = everything(folder)
        assert not any(value in data for row, value in sealed.items() if row not in left)
        assert device.export_data(tmp_path / "rows.jsonl") == len(TEXTS) - 2
        device.erase()
    assert not folder.exists()


def test_no_nonce_comes_twice(folder):
    found = []
    for table, column in (("texts", "sealed"), ("examples", "label"), ("embeddings", "vector")):
        found += [value[:12] for (value,) in sql(folder, f"SELECT {column} FROM {table}")]
    assert all(one != two for one, two in pairwise(sorted(found)))


def test_without_the_extra_it_says_what_to_install(tmp_path, releases):
    code = """
import sys
sys.modules["cryptography"] = None
import fala
try:
    fala.Device.create(sys.argv[1], sys.argv[2], key=lambda: bytes(32))
except fala.MissingExtraError as error:
    print(error)
fala.Device.create(sys.argv[1], sys.argv[2]).close()
"""
    command = [sys.executable, "-c", code, str(tmp_path / "device"), str(releases["old"])]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ})
    assert done.returncode == 0 and "fala-sdk[encryption]" in done.stdout, done.stderr
