"""After a repair, a device requires the signatures that it required before."""

import os
import shutil

import numpy as np
import pytest

pytest.importorskip("cryptography")

from bridged import TEXTS
from devices import damaged_pages, sql, unchecked
from fala import BundleSignatureError, DataError, Device, DeviceError
from fala_export.updates.keys import make_key
from fala_export.updates.signing import sign_file

KEY = bytes(range(32))


@pytest.fixture
def trusting(tmp_path, releases, labels):
    """Make a folder that requires signatures; return it and the key."""
    make_key(tmp_path / "key.pem")
    shutil.copy(releases["old"], tmp_path / "old.fala")
    sign_file(tmp_path / "old.fala", tmp_path / "key.pem")
    key = tmp_path / "key.pub"
    with Device.create(tmp_path / "device", tmp_path / "old.fala", trust=key) as device:
        device.learn(TEXTS, labels)
    return tmp_path / "device", key


def requires_signatures(folder, release, key=None):
    with (
        Device.open(folder, key=key) as device,
        pytest.raises(BundleSignatureError, match="not signed"),
    ):
        device.replace(release)
    return True


@pytest.mark.parametrize("damaged", ["device", "trusted"])
def test_the_trusted_key_survives_a_damaged_page(trusting, releases, damaged):
    folder, _ = trusting
    damaged_pages(folder, damaged)
    assert Device.repair(folder).whole
    assert requires_signatures(folder, releases["new"])


#: What leaves no place that says which key was trusted.
LOST = {
    "pages": lambda folder: damaged_pages(folder, "device", "trusted"),
    "a row": lambda folder: unchecked(folder, "DELETE FROM device"),
    "no record": lambda folder: unchecked(folder, "UPDATE device SET trust = NULL"),
    "another byte": lambda folder: unchecked(
        folder, "UPDATE device SET trust = x'00' || substr(trust, 2)"
    ),
    "a text": lambda folder: unchecked(folder, "UPDATE device SET trust = 'none'"),
    "a cut file": lambda folder: os.truncate(folder / "store.sqlite3", 4096),
}


@pytest.mark.parametrize("lost", LOST)
def test_no_repair_drops_the_trusted_key(trusting, releases, lost):
    folder, key = trusting
    LOST[lost](folder)
    assert any("which key" in line for line in Device.examine(folder).actions)
    before = (folder / "store.sqlite3").read_bytes()
    with pytest.raises(DeviceError, match="pass the vendor's key"):
        Device.repair(folder)
    with pytest.raises(DeviceError, match="pass the vendor's key"):
        Device.repair(folder, releases["new"])
    assert (folder / "store.sqlite3").read_bytes() == before
    copy = shutil.copytree(folder, folder.with_name("copy"))
    release = folder.with_name("old.fala")
    assert Device.repair(folder, release, trust=key).whole
    assert requires_signatures(folder, releases["new"])
    assert Device.repair(copy, release, unsigned=True).whole
    with Device.open(copy) as device:
        assert device.replace(releases["new"]).new == "new"


def test_without_its_row_a_device_installs_nothing(trusting, releases):
    folder, _ = trusting
    unchecked(folder, "DELETE FROM device")
    with pytest.raises(DeviceError, match="damaged"), Device.open(folder) as device:
        device.replace(releases["new"])


def test_a_key_that_can_be_read_stays(trusting, releases):
    folder, key = trusting
    unchecked(folder, "UPDATE slots SET weight = x'00'")
    with pytest.raises(DataError, match="leave trust= out"):
        Device.repair(folder, trust=key, unsigned=True)
    assert Device.repair(folder, unsigned=True).whole
    assert requires_signatures(folder, releases["new"])


def test_an_encrypted_store_takes_no_key_that_was_edited(trusting, releases, labels):
    """Its own record alone counts, whatever else was edited."""
    folder, trust = trusting
    copies = [folder.with_name("first"), folder.with_name("second")]
    for copy, wanted in zip(copies, (trust, None), strict=True):
        release = folder.with_name("old.fala")
        with Device.create(copy, release, trust=wanted, key=lambda: KEY) as device:
            device.learn(TEXTS, labels)
    ((foreign,),) = sql(copies[1], "SELECT trust FROM device")
    first = shutil.copytree(copies[0], folder.with_name("edited"))
    unchecked(copies[0], "UPDATE device SET trial_slot = 'a'", "DELETE FROM digests")
    assert Device.repair(copies[0], key=lambda: KEY).whole
    with Device.open(copies[0], key=lambda: KEY) as device:
        device.rotate_key(lambda: KEY[::-1])
    assert requires_signatures(copies[0], releases["new"], key=lambda: KEY[::-1])
    sql(first, "UPDATE device SET trust = ?", foreign)
    with pytest.raises(DeviceError, match="pass the vendor's key"):
        Device.repair(first, key=lambda: KEY)
    assert Device.repair(first, trust=trust, key=lambda: KEY).whole
    assert requires_signatures(first, releases["new"], key=lambda: KEY)


def test_a_device_without_a_vendor_has_no_key_to_lose(tmp_path):
    path = tmp_path / "device"
    with Device.create(path, labels=["a", "b"], encoder={"letters": letters}) as device:
        device.learn(["aa", "bb", "ab", "ba"] * 3, ["a", "b"] * 6)
    unchecked(path, "DELETE FROM device")
    assert Device.repair(path).whole


def letters(texts):
    return np.array([[text.count("a"), text.count("b"), 1.0] for text in texts])
