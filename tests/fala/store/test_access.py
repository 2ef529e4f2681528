"""Folders that a process may not read or write are not damaged, and nothing changes."""

import contextlib
import errno
import os
import shutil
import sqlite3
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from bridged import TEXTS
from devices import everything, unchecked
from fala import Device, DeviceError
from fala.slots.folder import STORE
from fala.store.access import integrity
from fala.testing import counted, failing_disk
from full_disk import files_of_at_most

pytestmark = pytest.mark.skipif(os.name == "nt", reason="permissions of POSIX")

#: The user's id if the tests run as root, whom no permission stops.
NOBODY = 65534
KEY = bytes(32)


@contextlib.contextmanager
def as_user():
    """Become a user whom permissions stop."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)


@pytest.fixture(scope="module")
def killed(tmp_path_factory, releases, labels):
    """Make folders of killed devices, plain and encrypted, whose rows are in the log."""
    base = tmp_path_factory.mktemp("killed")
    for name, key in (("plain", None), ("encrypted", lambda: KEY)):
        with Device.create(base / f"{name}-open", releases["old"], key=key) as device:
            device.learn(TEXTS, labels)
            shutil.copytree(base / f"{name}-open", base / name)
    return base


@pytest.fixture
def device(request, killed):
    """Return the folder of a user's killed device, and the arguments to open it."""
    kind = getattr(request, "param", "encrypted")
    key = None if kind == "plain" else lambda: KEY
    with tempfile.TemporaryDirectory(prefix="fala-") as base:  # others may not enter tmp_path
        Path(base).chmod(0o755)
        folder = shutil.copytree(killed / kind, Path(base) / "device")
        # The user's, with all modules loaded.
        if os.geteuid() == 0:
            for file in (folder, *folder.rglob("*")):
                os.chown(file, NOBODY, NOBODY)
        assert (folder / STORE).stat().st_size == 4096
        yield folder, {"key": key}


def check_whole(folder, options):
    """Check that nothing of a device is lost."""
    report = Device.examine(folder, **options)
    assert (report.whole, report.examples, report.labelled) == (True, 90, 90)
    with Device.open(folder, **options) as device:
        assert len(list(device.examples())) == 90
    assert not [*folder.glob("damaged-*"), *folder.glob("*rebuilt-*")]


CALLS = (Device.examine, Device.repair, Device.open)


@pytest.mark.parametrize(
    ("name", "mode", "calls"),
    [
        (STORE, 0, CALLS), (f"{STORE}-wal", 0, CALLS), (f"{STORE}-shm", 0, CALLS),
        (".", 0, CALLS), ("bundles", 0, CALLS), ("bundles", 0o400, CALLS[:2]),
        ("bundles/*", 0, CALLS[:2]),
    ],
)  # fmt: skip
def test_a_file_that_may_not_be_read_is_no_damage(device, name, mode, calls):
    folder, options = device
    (file,) = folder.glob(name) if name.endswith("*") else [folder / name]
    named = (file if mode == 0 else next(file.iterdir())).name
    usual = file.stat().st_mode
    file.chmod(mode)
    for call in calls:
        with as_user(), pytest.raises(DeviceError) as raised:
            call(folder, **options)
        message = str(raised.value)
        assert named in message and "change the permissions" in message
        assert "damage" not in message
    file.chmod(usual)
    check_whole(folder, options)


def test_a_bundle_that_may_not_be_read_is_no_damage_beside_a_damaged_slot(device):
    folder, options = device
    unchecked(folder, "UPDATE slots SET weight = x'00'")
    (bundle,) = (folder / "bundles").iterdir()
    bundle.chmod(0)
    for call in CALLS[:2]:
        with as_user(), pytest.raises(DeviceError, match="change the permissions"):
            call(folder, **options)
    bundle.chmod(0o600)
    assert Device.repair(folder, **options).labelled == 90


@pytest.mark.parametrize("ends", [["-shm"], ["-shm", "-wal"]])
def test_a_folder_that_may_not_be_written_is_no_damage(device, ends):
    folder, options = device
    if "-wal" in ends:
        Device.open(folder, **options).close()
    for end in ends:
        (folder / f"{STORE}{end}").unlink(missing_ok=True)
    before = everything(folder)
    folder.chmod(0o500)
    for call in CALLS:
        with as_user(), pytest.raises(DeviceError, match=f"not read and write {folder.name}; use"):
            call(folder, **options)
    folder.chmod(0o700)
    assert everything(folder) == before
    check_whole(folder, options)


def test_a_full_disk_is_no_damage(device):
    folder, options = device
    (folder / f"{STORE}-shm").unlink()
    for call in CALLS:
        with files_of_at_most(0), pytest.raises(DeviceError, match="I/O error; free some space"):
            call(folder, **options)
    check_whole(folder, options)


def test_a_shortage_of_memory_is_no_damage(device, monkeypatch):
    folder, options = device

    def fail(*arguments):
        raise MemoryError

    monkeypatch.setattr("fala.slots.repair._examined", fail)
    for call in CALLS[:2]:
        with pytest.raises(DeviceError, match="not enough memory"):
            call(folder, **options)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("device", "damaged", "error", "step"),
    [("plain", False, errno.EIO, 5), ("encrypted", True, errno.ENOSPC, 11)],
    indirect=["device"],
)
def test_a_repair_on_a_failing_disk_loses_nothing(device, tmp_path, damaged, error, step):
    """Whichever operation fails, the next repair has all that the first one had."""
    folder, options = device
    if damaged:
        unchecked(folder, "UPDATE active SET slot = 'b'")

    def copy(name):
        return shutil.copytree(folder, tmp_path / name)

    with counted(copy("counted")) as operations:
        Device.repair(tmp_path / "counted", **options)
    for at in range(1, len(operations) + 1, step):
        with failing_disk(path := copy(str(at)), at, error), contextlib.suppress(DeviceError):
            Device.examine(path, **options)
            Device.repair(path, **options)
        report = Device.repair(path, **options)
        assert (report.whole, report.examples, report.labelled) == (True, 90, 90)
        if not damaged:
            check_whole(path, options)


def test_an_unread_page_is_no_damage():
    def found(*lines):
        rows = SimpleNamespace(fetchall=lambda: [(line,) for line in lines])
        return integrity(SimpleNamespace(execute=lambda query: rows), 3)

    assert found("ok") == []
    lines = ["Tree 4 page 7: unable to get the page. error code=11", "row 1 missing from index"]
    assert found(*lines) == lines
    for code in (10, 266):
        with pytest.raises(sqlite3.OperationalError, match="disk I/O error"):
            found(f"Page 7: unable to get the page. error code={code}")
