"""Releases that many devices share are kept once, and are loaded once per process."""

import gc
import multiprocessing
import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import fala
from bridged import PROBES, TEXTS
from device_command import done, failed, works
from devices import same, sql, state
from fala import Budget, Bundle, Device, Releases
from fala.slots import release as loaded
from fala.testing import PowerCuts, write_releases


@pytest.fixture
def shared(tmp_path):
    return Releases(tmp_path / "releases")


@pytest.fixture
def create(tmp_path, shared):
    """Return a function that creates a user's device, which shares its release."""
    return lambda user, release: Device.create(tmp_path / f"{user}", release, releases=shared)


@pytest.fixture(scope="module")
def transformer(tmp_path_factory):
    return write_releases(tmp_path_factory.mktemp("transformers"))["bert"]


def digest(release):
    return Bundle.open(release).digest


def file_of(path, release):
    return path / "bundles" / f"{digest(release)}.fala"


def is_loaded(release):
    return Bundle.open(release).backbone_digest in loaded._shared.backbones


def files_in(folder):
    """Return the files of releases; one with several names counts once."""
    return {file.stat().st_ino for file in folder.rglob("*.fala")}


def test_a_device_is_opened_without_the_folder(tmp_path, releases, shared, create):
    with create("a", releases["old"]) as device:
        device.learn(TEXTS[:20], ["1", "0"] * 10)
        before = state(device)
    shutil.rmtree(shared.path)
    with Device.open(tmp_path / "a") as device:
        assert same(state(device), before)
        device.replace(releases["mid"], Budget(0))
        device.rollback()
        assert same(state(device), before)
    assert Device.examine(tmp_path / "a").whole


def test_a_used_release_is_not_deleted(releases, shared, create):
    old, mid, new = map(digest, (releases["old"], releases["mid"], releases["new"]))
    with create("a", releases["old"]) as device:
        device.replace(releases["mid"], Budget(0))
        for each in (old, mid):  # the device can go back to the first
            with pytest.raises(fala.ReleaseInUseError, match="is used by 1 device"):
                shared.remove(each)
        device.replace(releases["new"], Budget(0))
        shared.remove(old)
        assert sorted(shared) == sorted([mid, new])
        device.rollback()
        device.predict(PROBES)
        device.erase()
    shared.remove(mid)
    shared.remove(new)
    assert list(shared) == []


def test_the_command_lists_releases_and_deletes_unused_ones(tmp_path, releases, shared, create):
    shared.add(releases["mid"])
    create("a", releases["old"]).close()
    rows = {row["digest"]: (row["name"], row["devices"]) for row in done("releases", shared.path)}
    assert rows == {digest(releases["old"]): ("old", 1), digest(releases["mid"]): ("mid", 0)}
    assert "mid: 0 devices\n" in works("releases", shared.path).stdout
    assert "mid: 0 devices, deleted" in works("releases", shared.path, "--remove-unused").stdout
    assert list(shared) == [digest(releases["old"])]
    assert "no such folder" in failed("releases", tmp_path / "none")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("value", [None, 3, "", "../x", "0" * 64, "*", b"0" * 64])
def test_what_is_no_digest_is_an_error(shared, value):
    assert value not in shared
    for call in (shared.remove, shared.devices, shared.backbone, shared.__getitem__):
        with pytest.raises(fala.DataError, match="no release has the digest"):
            call(value)


def test_a_release_that_cannot_be_trusted_is_not_kept(tmp_path, releases, shared, create):
    damaged = tmp_path / "damaged.fala"
    content = bytearray(releases["old"].read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    for call in (
        lambda: shared.add(damaged),
        lambda: shared.add(tmp_path / "none.fala"),
        lambda: shared.add(releases["old"], trust=bytes(32)),  # it has no signature
        lambda: create("a", damaged),
    ):
        with pytest.raises(fala.BundleError):
            call()
    assert list(shared) == [] and not (tmp_path / "a").exists()
    with pytest.raises(fala.DataError, match="releases must be fala"):
        Device.create(tmp_path / "a", releases["old"], releases="releases")
    with pytest.raises(fala.DeviceError, match="damaged"):
        Releases(damaged)


@pytest.mark.parametrize("found", ["a copy", "missing", "damaged", "a folder"])
def test_a_device_gets_its_file_again(tmp_path, releases, shared, create, found):
    with create("a", releases["old"]) as device:
        device.learn(TEXTS[:20], ["1", "0"] * 10)
        before = state(device)
    file = file_of(tmp_path / "a", releases["old"])
    file.unlink()
    if found == "a folder":
        file.mkdir()
    elif found != "missing":
        file.write_bytes(releases["old"].read_bytes() if found == "a copy" else b"no bundle")
    with Device.open(tmp_path / "a", releases=shared) as device:
        assert same(state(device), before)
    assert shared.devices(digest(releases["old"])) == 1


def test_a_damaged_release_is_replaced_for_all(tmp_path, releases, shared, create):
    for user in "ab":
        create(user, releases["old"]).close()
    # In place, because it is the file of all.
    (shared.path / f"{digest(releases['old'])}.fala").write_bytes(b"no bundle")
    for user in "ab":
        with pytest.raises(fala.BundleError):
            Device.open(tmp_path / user).predict(PROBES)
    again = Releases(shared.path)  # as another process
    again.add(releases["old"])
    for user in "ab":
        with Device.open(tmp_path / user, releases=again) as device:
            device.predict(PROBES)


def test_without_links_a_device_has_a_copy(tmp_path, releases, shared, create, monkeypatch, caplog):
    def refuse(*_, **__):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with create("a", releases["old"]) as device:
        device.replace(releases["mid"], Budget(0))
        device.predict(PROBES)
    assert "a copy, because it cannot be a link" in caplog.text
    assert shared.devices(digest(releases["mid"])) == 0
    assert not list(tmp_path.rglob("*.part"))


def test_more_devices_than_a_file_has_links(tmp_path, releases, create, monkeypatch):
    """A second file takes the name, and the devices of the first file keep it."""
    real, most = os.link, 4

    def limited(source, target, **named):
        if source.stat().st_nlink >= most:
            raise OSError(31, "Too many links")
        real(source, target, **named)

    monkeypatch.setattr(os, "link", limited)
    for user in range(10):
        create(user, releases["old"]).close()
    assert len(files_in(tmp_path)) == 4
    for user in range(10):
        with Device.open(tmp_path / f"{user}") as device:
            device.predict(PROBES)


def test_a_creation_or_replacement_that_is_killed_leaves_no_reference_without_its_file(
    tmp_path, releases
):
    base = tmp_path / "base"
    with Device.create(base / "a", releases["old"], releases=Releases(base / "releases")) as device:
        device.learn(TEXTS[:20], ["1", "0"] * 10)

    def work(folder, say):
        shared = Releases(folder / "releases")
        with Device.open(folder / "a", releases=shared) as device:
            device.replace(releases["mid"], Budget(0))
        Device.create(folder / "b", releases["mid"], releases=shared).close()

    cuts = PowerCuts(work, base, scratch=tmp_path)
    # One of them shares the release of a copied folder again.
    assert sum(each.kind == "link" for each in cuts.course().operations) == 3
    for cut in cuts.at_operations({"link", "rename"}, unsynced="lost"):
        shared = Releases(cut.folder / "releases")
        with Device.open(cut.folder / "a", releases=shared) as device:
            assert len(list(device.examples())) == 20
            device.predict(PROBES)
            used = {each for (each,) in sql(cut.folder / "a", "SELECT bundle FROM slots")}
            # What was left over is deleted when the device is opened.
            assert {file.stem for file in (cut.folder / "a" / "bundles").iterdir()} == used
        if not (cut.folder / "b" / "bundles").exists():
            work(cut.folder, None)
            assert not list(cut.folder.rglob("*.part"))


def test_processes_and_threads_that_share_releases_at_once(tmp_path, releases):
    def create(user):
        shared = Releases(tmp_path / "releases")
        with Device.create(tmp_path / f"{user}", releases["old"], releases=shared) as device:
            device.predict(PROBES)

    def many(first):
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(create, range(first, first + 8)))

    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=many, args=(10 * number,)) for number in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert Releases(tmp_path / "releases").devices(digest(releases["old"])) == 16


# One backbone a process


def test_devices_of_a_release_have_one_backbone(tmp_path, transformer, shared, create, monkeypatch):
    """It is loaded once, also by threads that open devices at once, and as long as it is used."""
    for user in range(3):
        create(user, transformer).close()
    Device.create(tmp_path / "3", transformer).close()  # with a file of its own
    loads, original, start = [], Bundle.backbone, threading.Barrier(4)

    def counted(self, *arguments):
        loads.append(self.path)
        return original(self, *arguments)

    def predict(user):
        start.wait()
        with Device.open(tmp_path / f"{user}") as device:
            values = device.predict_proba(PROBES).tolist()
            start.wait()
            return values

    monkeypatch.setattr(Bundle, "backbone", counted)
    with ThreadPoolExecutor(4) as pool:
        first, *others = pool.map(predict, range(4))
    assert len(loads) == 1 and others == [first] * 3
    gc.disable()  # nothing waits for it
    try:
        assert not is_loaded(transformer)
        kept = shared.backbone(digest(transformer))
        Device.open(tmp_path / "0", releases=shared).close()
        assert is_loaded(transformer) and len(kept.encode(PROBES)) == len(PROBES)
        del kept
        assert not is_loaded(transformer)
    finally:
        gc.enable()


def test_a_changed_file_is_noticed_although_the_release_is_open(tmp_path, transformer, create):
    with create("a", transformer) as device:
        device.predict(PROBES)
        Device.create(tmp_path / "copy", transformer).close()
        file = file_of(tmp_path / "copy", transformer)
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
        with pytest.raises(fala.BundleDigestError):
            Device.open(tmp_path / "copy")
        device.predict(PROBES)
