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
        device.learn(TEXTS[:30], labels[:30])
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
    for further in ([], [releases["new"]]):
        with pytest.raises(DeviceError, match="pass the vendor's key"):
            Device.repair(folder, *further)
    with pytest.raises(DeviceError, match="damaged"), Device.open(folder) as device:
        device.replace(releases["new"])
    assert (folder / "store.sqlite3").read_bytes() == before
    copy = shutil.copytree(folder, folder.with_name("copy"))
    release = folder.with_name("old.fala")
    assert Device.repair(folder, release, trust=key).whole
    assert requires_signatures(folder, releases["new"])
    assert Device.repair(copy, release, unsigned=True).whole
    with Device.open(copy) as device:
        assert device.replace(releases["new"]).new == "new"


def test_a_key_that_can_be_read_stays(trusting, releases):
    folder, key = trusting
    unchecked(folder, "UPDATE slots SET weight = x'00'")
    with pytest.raises(DataError, match="leave trust= out"):
        Device.repair(folder, trust=key, unsigned=True)
    assert Device.repair(folder, unsigned=True).whole
    assert requires_signatures(folder, releases["new"])


def test_a_release_of_a_repair_is_admitted_as_any_other(trusting, releases):
    folder, _ = trusting
    (bundle,) = (folder / "bundles").iterdir()
    bundle.write_bytes(b"no bundle")
    with pytest.raises(BundleSignatureError, match="not signed"):
        Device.repair(folder, releases["new"])
    assert Device.repair(folder, folder.with_name("old.fala")).active == "old"
    assert requires_signatures(folder, releases["new"])


def test_an_encrypted_store_takes_no_key_that_was_edited(trusting, releases, labels):
    """Its own record alone counts, whatever else was edited."""
    folder, trust = trusting
    release, copies = folder.with_name("old.fala"), {}
    for name, wanted in (("first", trust), ("second", None)):
        copies[name] = folder.with_name(name)
        Device.create(copies[name], release, trust=wanted, key=lambda: KEY).close()
    ((foreign,),) = sql(copies["second"], "SELECT trust FROM device")
    edited = shutil.copytree(copies["first"], folder.with_name("edited"))
    unchecked(copies["first"], "UPDATE device SET trial_slot = 'a'", "DELETE FROM digests")
    assert Device.repair(copies["first"], key=lambda: KEY).whole
    with Device.open(copies["first"], key=lambda: KEY) as device:
        device.rotate_key(lambda: KEY[::-1])
    assert requires_signatures(copies["first"], releases["new"], key=lambda: KEY[::-1])
    sql(edited, "UPDATE device SET trust = ?", foreign)
    with pytest.raises(DeviceError, match="pass the vendor's key"):
        Device.repair(edited, key=lambda: KEY)
    assert Device.repair(edited, trust=trust, key=lambda: KEY).whole
    assert requires_signatures(edited, releases["new"], key=lambda: KEY)


def test_a_device_without_a_vendor_has_no_key_to_lose(tmp_path):
    path = tmp_path / "device"
    with Device.create(path, labels=["a", "b"], encoder={"letters": letters}) as device:
        device.learn(["aa", "bb", "ab", "ba"] * 3, ["a", "b"] * 6)
    unchecked(path, "DELETE FROM device")
    assert Device.repair(path).whole


def letters(texts):
    return np.array([[text.count("a"), text.count("b"), 1.0] for text in texts])
