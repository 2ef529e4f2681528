"""An encrypted device equals a plain one with its key, and cannot be read without it."""

import sys

import pytest

from bridged import TEXTS
from devices import everything, halved, live, same, sql, state
from fala import Budget, DataError, Device, DeviceError, MissingExtraError

pytestmark = pytest.mark.slow

FIRST, SECOND = bytes(range(32)), bytes(range(32, 64))


def key():
    return FIRST


def key_2():
    return SECOND


@pytest.fixture
def folder(tmp_path, releases, labels):
    folder = tmp_path / "sealed"
    with Device.create(folder, releases["old"], key=key) as device:
        device.learn(TEXTS, labels)
    return folder


def test_an_encrypted_device_equals_a_plain_one(tmp_path, releases, labels):
    found = []
    for name, options in (("plain", {}), ("sealed", {"key": key})):
        with Device.create(tmp_path / name, releases["old"], **options) as device:
            states = live(device, releases, labels, 20)
        with Device.open(tmp_path / name, **options) as device:
            rows = [(row.example, row.label) for row in device.examples()]
            found.append(([*states, state(device)], rows))
    (plain, expected), (sealed, rows) = found
    assert rows == expected and all(same(*each) for each in zip(sealed, plain, strict=True))
    assert Device.examine(tmp_path / "sealed", key=key).whole


def test_no_user_data_is_readable(folder, releases):
    with Device.open(folder, key=key) as device:
        device.replace(releases["mid"], Budget(20))
        model = device.model
        files = everything(folder)
    for data in (files, everything(folder)):
        for text in TEXTS:
            assert text.encode() not in data
        for array in (*halved(releases["old"], TEXTS).astype("<f2"), model.weight, model.bias):
            assert array.tobytes() not in data
    # Equal labels look different, as every record has a nonce of its own.
    labels = {value for (value,) in sql(folder, "SELECT label FROM examples")}
    assert len(labels) == len(TEXTS) and all(isinstance(value, bytes) for value in labels)
    nonces = []
    for table, column in (("texts", "sealed"), ("examples", "label"), ("embeddings", "vector")):
        nonces += [value[:12] for (value,) in sql(folder, f"SELECT {column} FROM {table}")]
    assert len(set(nonces)) == len(nonces)


def test_another_key_or_none_changes_nothing(folder, releases, tmp_path):
    with Device.create(tmp_path / "plain", releases["old"]) as plain:
        plain.remember(["a text"], ["1"])
    for wrong, message in ((key_2, "another key"), (None, "is encrypted; open it with its key")):
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
    [FIRST, "key", lambda: None, lambda: FIRST[:31], lambda: FIRST.hex()],
    ids=["bytes", "text", "nothing", "short", "hex"],
)
def test_a_wrong_key_function_is_rejected(wrong, folder, tmp_path, releases):
    with Device.open(folder, key=key) as device:
        for call in (
            lambda: Device.create(tmp_path / "new", releases["old"], key=wrong),
            lambda: Device.open(folder, key=wrong),
            lambda: Device.repair(folder, key=wrong),
            lambda: device.rotate_key(wrong),
        ):
            with pytest.raises(DataError, match="32 bytes") as caught:
                call()
            said = str(caught.value)
            assert FIRST.hex()[:62] not in said and repr(FIRST)[:20] not in said
        with pytest.raises(DataError, match="key"):
            device.rotate_key(None)
    assert not (tmp_path / "new").exists()
    Device.open(folder, key=key).close()


def test_an_error_of_the_key_function_is_raised(folder):
    with pytest.raises(ZeroDivisionError):
        Device.open(folder, key=lambda: 1 // 0)


def test_a_repair_restores_a_missing_key_mark(folder):
    sql(folder, "UPDATE device SET key_mark = NULL")
    for wrong, message in ((None, "is encrypted; open it with its key"), (key_2, "another key")):
        with pytest.raises(DeviceError, match=message):
            Device.repair(folder, key=wrong)
    assert Device.repair(folder, key=key).whole
    with pytest.raises(DeviceError, match="another key"):
        Device.open(folder, key=key_2)
    assert TEXTS[20].encode() not in everything(folder)


@pytest.mark.parametrize("old", [key, None], ids=["encrypted", "plain"])
def test_rotate_key_leaves_nothing_of_what_was_stored(folder, path, old):
    path = folder if old else path
    with Device.open(path, key=old) as device:
        before = state(device)
        stored = [
            sealed or text.encode() for text, sealed in sql(path, "SELECT text, sealed FROM texts")
        ]
        assert all(value in everything(path) for value in stored)
        device.rotate_key(key_2)
        data = everything(path)
        assert not any(value in data for value in stored) and same(state(device), before)
        device.learn(["one more"], ["1"])
    with pytest.raises(DeviceError, match="another key" if old else "is encrypted"):
        Device.open(path, key=old)
    with Device.open(path, key=key_2) as device:
        assert len([*device.examples()]) == len(TEXTS) + 1


def test_a_rotation_that_fails_changes_nothing(folder, monkeypatch):
    before = sql(folder, "SELECT * FROM texts")
    monkeypatch.setattr("fala.store.database.Database.note_deletion", lambda *_: 1 / 0)
    with Device.open(folder, key=key) as device, pytest.raises(ZeroDivisionError):
        device.rotate_key(key_2)
    assert sql(folder, "SELECT * FROM texts") == before
    with Device.open(folder, key=key) as device:
        assert len([*device.examples()]) == len(TEXTS)


def test_a_forgotten_record_is_overwritten_and_a_device_erased(folder):
    with Device.open(folder, key=key) as device:
        sealed = dict(sql(folder, "SELECT id, sealed FROM texts"))
        assert device.forget([1, 2]).count == 2
        rows = {row for (row,) in sql(folder, "SELECT id FROM texts")}
        data = everything(folder)
        assert not any(value in data for row, value in sealed.items() if row not in rows)
        device.erase()
    assert not folder.exists()


def test_without_the_extra_the_error_names_it(tmp_path, releases, monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(MissingExtraError, match=r"\[encryption\]'"):
        Device.create(tmp_path / "device", releases["old"], key=key)
    Device.create(tmp_path / "device", releases["old"]).close()
