"""Releases that many devices share: kept once, loaded once a process."""

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
from fala.base.errors import (
    BundleDigestError,
    BundleError,
    DataError,
    DeviceError,
    ReleaseInUseError,
)
from fala.slots import release as loaded
from fala.testing import PowerCuts, write_releases


@pytest.fixture
def shared(tmp_path):
    return Releases(tmp_path / "releases")


@pytest.fixture(scope="module")
def transformers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("transformers")
    write_releases(folder)
    return {name: folder / f"{name}.fala" for name in ("glove", "bert")}


def digest(release):
    return Bundle.open(release).digest


def file_of(path, release):
    return path / "bundles" / f"{digest(release)}.fala"


def is_loaded(release):
    return Bundle.open(release).backbone_digest in loaded._shared.backbones


def size(folder):
    """Bytes on the disk; a file with several names counts once."""
    files = {file.stat().st_ino: file.stat().st_size for file in folder.rglob("*.fala")}
    return sum(files.values())


def test_a_release_is_kept_once(tmp_path, releases, shared):
    for user in range(5):
        with Device.create(tmp_path / f"{user}", releases["old"], releases=shared) as device:
            device.learn(TEXTS[:4], ["1", "0", "1", "0"])
    assert list(shared) == [digest(releases["old"])]
    assert shared[digest(releases["old"])] == Bundle.open(releases["old"])
    assert shared.devices(digest(releases["old"])) == 5
    kept = size(tmp_path)
    assert kept == file_of(tmp_path / "0", releases["old"]).stat().st_size
    with Device.open(tmp_path / "3", releases=shared) as device:
        device.replace(releases["mid"], Budget(0))
    assert size(tmp_path) == kept + file_of(tmp_path / "3", releases["mid"]).stat().st_size
    assert [shared.devices(each) for each in map(digest, (releases["old"], releases["mid"]))] == [
        5, 1,
    ]  # fmt: skip


def test_a_device_is_opened_without_the_folder(tmp_path, releases, shared):
    with Device.create(tmp_path / "a", releases["old"], releases=shared) as device:
        device.learn(TEXTS[:20], ["1", "0"] * 10)
        before = state(device)
    shutil.rmtree(shared.path)
    with Device.open(tmp_path / "a") as device:
        assert same(state(device), before)
        device.replace(releases["mid"], Budget(0))
        device.rollback()
        assert same(state(device), before)
    assert Device.examine(tmp_path / "a").whole


def test_a_used_release_is_not_deleted(tmp_path, releases, shared):
    old, mid, new = map(digest, (releases["old"], releases["mid"], releases["new"]))
    with Device.create(tmp_path / "a", releases["old"], releases=shared) as device:
        with pytest.raises(ReleaseInUseError, match="is used by 1 device"):
            shared.remove(old)
        device.replace(releases["mid"], Budget(0))
        for each in (old, mid):  # the device can go back to the first
            with pytest.raises(ReleaseInUseError):
                shared.remove(each)
        device.replace(releases["new"], Budget(0))
        shared.remove(old)
        assert sorted(shared) == sorted([mid, new]) and old not in shared
        with pytest.raises(DataError, match="no release of the digest"):
            shared.remove(old)
        device.rollback()
        device.predict(PROBES)
        device.erase()
    shared.remove(mid)
    shared.remove(new)
    assert list(shared) == []


def test_the_command_lists_releases_and_deletes_unused_ones(tmp_path, releases, shared):
    shared.add(releases["mid"])
    Device.create(tmp_path / "a", releases["old"], releases=shared).close()
    rows = {row["name"]: row for row in done("releases", shared.path)}
    assert {name: row["devices"] for name, row in rows.items()} == {"old": 1, "mid": 0}
    assert rows["old"]["digest"] == digest(releases["old"])
    assert "mid: 0 devices\n" in works("releases", shared.path).stdout
    assert "mid: 0 devices, deleted" in works("releases", shared.path, "--remove-unused").stdout
    assert list(shared) == [digest(releases["old"])]
    assert "no such folder" in failed("releases", tmp_path / "none")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("value", [None, 3, "", "../x", "0" * 64, "*", b"0" * 64])
def test_what_is_no_digest_is_an_error(shared, value):
    assert value not in shared
    for call in (shared.remove, shared.devices, shared.__getitem__):
        with pytest.raises(DataError, match="no release of the digest"):
            call(value)


def test_a_release_that_cannot_be_trusted_is_not_kept(tmp_path, releases, shared):
    damaged = tmp_path / "damaged.fala"
    content = bytearray(releases["old"].read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    for call in (
        lambda: shared.add(damaged),
        lambda: shared.add(tmp_path / "none.fala"),
        lambda: shared.add(releases["old"], trust=bytes(32)),  # it has no signature
        lambda: Device.create(tmp_path / "a", damaged, releases=shared),
    ):
        with pytest.raises(BundleError):
            call()
    assert list(shared) == [] and not (tmp_path / "a").exists()
    for wrong in (tmp_path / "releases", "releases", 3):
        with pytest.raises(DataError, match="releases is fala"):
            Device.create(tmp_path / "a", releases["old"], releases=wrong)


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(DeviceError, match="file"):
        Releases(tmp_path / "file")


def test_a_device_with_a_copy_shares_its_release_once_it_is_opened_so(
    tmp_path, path, releases, shared
):
    other = shutil.copytree(path, tmp_path / "other")
    for folder in (path, other):
        with Device.open(folder, releases=shared) as device:
            device.predict(PROBES)
    assert shared.devices(digest(releases["old"])) == 2
    assert file_of(path, releases["old"]).samefile(file_of(other, releases["old"]))


@pytest.mark.parametrize("damage", ["missing", "damaged", "a folder"])
def test_a_device_without_its_file_gets_it_again(tmp_path, releases, shared, damage):
    with Device.create(tmp_path / "a", releases["old"], releases=shared) as device:
        device.learn(TEXTS[:20], ["1", "0"] * 10)
        before = state(device)
    file = file_of(tmp_path / "a", releases["old"])
    file.unlink()
    if damage == "damaged":
        file.write_bytes(b"no bundle")
    elif damage == "a folder":
        file.mkdir()
    with pytest.raises(BundleError, match="doctor"):
        Device.open(tmp_path / "a")
    with Device.open(tmp_path / "a", releases=shared) as device:
        assert same(state(device), before)
    assert shared.devices(digest(releases["old"])) == 1


def test_a_damaged_release_is_replaced_for_all(tmp_path, releases, shared):
    paths = [tmp_path / "a", tmp_path / "b"]
    for path in paths:
        Device.create(path, releases["old"], releases=shared).close()
    kept = shared.path / f"{digest(releases['old'])}.fala"
    content = bytearray(kept.read_bytes())
    content[-2000:-1000] = bytes(1000)
    kept.write_bytes(content)  # in place: it is the file of all
    for path in paths:
        with pytest.raises(BundleError):
            Device.open(path).predict(PROBES)
    again = Releases(shared.path)  # as another process
    again.add(releases["old"])
    for path in paths:
        with Device.open(path, releases=again) as device:
            device.predict(PROBES)


def test_without_links_a_device_has_a_copy(tmp_path, releases, shared, monkeypatch, caplog):
    def refuse(*_, **__):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with Device.create(tmp_path / "a", releases["old"], releases=shared) as device:
        device.replace(releases["mid"], Budget(0))
        device.predict(PROBES)
    assert "a copy, as it cannot be a link" in caplog.text
    assert shared.devices(digest(releases["mid"])) == 0
    assert not list(tmp_path.rglob("*.part"))


def test_more_devices_than_a_file_has_links(tmp_path, releases, shared, monkeypatch):
    """A second file takes the name; the devices of the first keep it."""
    real, most = os.link, 4

    def limited(source, target, **named):
        if source.stat().st_nlink >= most:
            raise OSError(31, "Too many links")
        real(source, target, **named)

    monkeypatch.setattr(os, "link", limited)
    for user in range(10):
        Device.create(tmp_path / f"{user}", releases["old"], releases=shared).close()
    files = {file_of(tmp_path / f"{user}", releases["old"]).stat().st_ino for user in range(10)}
    assert len(files) == 4
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
        with Device.create(folder / "b", releases["mid"], releases=shared) as device:
            device.learn(TEXTS[:4], ["1", "0", "1", "0"])

    cuts = PowerCuts(work, base)
    kinds = {"link", "rename", "delete", "create"}
    numbers = [
        number for number, each in enumerate(cuts.course().operations, 1) if each.kind in kinds
    ]
    # One of them shares the release of a copied folder again.
    assert sum(each.kind == "link" for each in cuts.course().operations) == 3
    for number in numbers:
        with cuts.copy() as folder:
            cuts.cut(folder, number, "lost")
            shared = Releases(folder / "releases")
            with Device.open(folder / "a", releases=shared) as device:
                assert len(list(device.examples())) == 20
                device.predict(PROBES)
                used = {each for (each,) in sql(folder / "a", "SELECT bundle FROM slots")}
                # What was left over is deleted when the device is opened.
                assert {file.stem for file in (folder / "a" / "bundles").iterdir()} == used
            if not (folder / "b" / "bundles").exists():
                work(folder, None)
                assert not list(folder.rglob("*.part"))


def test_processes_and_threads_that_share_releases_at_once(tmp_path, releases):
    def create(user):
        with Device.create(
            tmp_path / f"{user}", releases["old"], releases=Releases(tmp_path / "releases")
        ) as device:
            device.predict(PROBES)

    def many(first):
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(create, range(first, first + 8)))

    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=many, args=(10 * number,)) for number in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    shared = Releases(tmp_path / "releases")
    assert shared.devices(digest(releases["old"])) == 24


# One backbone a process


def test_devices_of_a_release_have_one_backbone(tmp_path, transformers, shared):
    devices = [
        Device.create(tmp_path / f"{user}", transformers["bert"], releases=shared)
        for user in range(3)
    ]
    copy = Device.create(tmp_path / "copy", transformers["bert"])
    values = [device.predict_proba(PROBES).tolist() for device in (*devices, copy)]
    assert all(each == values[0] for each in values)
    with ThreadPoolExecutor(4) as pool:  # and its threads share it
        for each in pool.map(lambda device: device.predict_proba(PROBES).tolist(), devices * 5):
            assert each == values[0]
    for device in devices:
        device.close()
        assert is_loaded(transformers["bert"])
    gc.disable()  # nothing waits for it
    try:
        copy.close()
        assert not is_loaded(transformers["bert"])
    finally:
        gc.enable()


def test_a_backbone_is_loaded_once_by_threads_that_open_devices_at_once(
    tmp_path, transformers, shared, monkeypatch
):
    for user in range(4):
        Device.create(tmp_path / f"{user}", transformers["bert"], releases=shared).close()
    loaded, original = [], Bundle.backbone
    start = threading.Barrier(4)

    def counted(self, *arguments):
        loaded.append(self.path)
        return original(self, *arguments)

    def predict(user):
        start.wait()
        device = Device.open(tmp_path / f"{user}")
        device.predict(PROBES)
        return device

    monkeypatch.setattr(Bundle, "backbone", counted)
    with ThreadPoolExecutor(4) as pool:
        devices = list(pool.map(predict, range(4)))
    assert len(loaded) == 1
    for device in devices:
        device.close()


def test_a_backbone_that_the_app_keeps_stays_loaded(tmp_path, transformers, shared):
    kept = shared.backbone(shared.add(transformers["bert"]).digest)
    with Device.create(tmp_path / "a", transformers["bert"], releases=shared) as device:
        device.predict(PROBES)
    assert is_loaded(transformers["bert"]) and kept.encode(PROBES).shape[0] == len(PROBES)
    del kept
    assert not is_loaded(transformers["bert"])
    with pytest.raises(DataError, match="no release of the digest"):
        shared.backbone("0" * 64)


def test_a_release_on_trial_is_probed_once_for_all_that_share_its_file(
    tmp_path, releases, shared, encoded, monkeypatch
):
    for user in range(3):
        with Device.create(tmp_path / f"{user}", releases["old"], releases=shared) as device:
            device.replace(releases["mid"], Budget(0))
    monkeypatch.setattr("fala.slots.tries._passed", set())  # as in another process
    for user in range(3):
        encoded.clear()
        with Device.open(tmp_path / f"{user}", releases=shared) as device:
            device.predict(PROBES[:1])
            assert device.status().on_trial
        assert (encoded != PROBES[:1]) == (user == 0)


def test_a_release_is_read_and_validated_once(tmp_path, transformers, shared, monkeypatch):
    shared.add(transformers["bert"])
    read = []
    original = Bundle.verified.__func__

    def counted(cls, *arguments, **named):
        read.append(arguments)
        return original(cls, *arguments, **named)

    monkeypatch.setattr(Bundle, "verified", classmethod(counted))
    monkeypatch.setattr(fala.slots.validation, "validate_in_child", None)
    kept = shared[digest(transformers["bert"])].path
    read.clear()
    for user in range(3):
        Device.create(tmp_path / f"{user}", kept, releases=shared).close()
        Device.open(tmp_path / f"{user}", releases=shared).close()
    assert read == []


def test_a_changed_file_is_noticed_although_the_release_is_open(tmp_path, transformers, shared):
    with Device.create(tmp_path / "a", transformers["bert"], releases=shared) as device:
        device.predict(PROBES)
        other = Device.create(tmp_path / "copy", transformers["bert"])
        other.close()
        file = file_of(tmp_path / "copy", transformers["bert"])
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
        with pytest.raises(BundleDigestError):
            Device.open(tmp_path / "copy")
        device.predict(PROBES)


def test_a_closed_device_holds_no_release(tmp_path, transformers):
    device = Device.create(tmp_path / "a", transformers["bert"])
    device.learn(TEXTS[:8], [*device.labels] * 4)
    device.close()
    assert not is_loaded(transformers["bert"])
    assert digest(transformers["bert"]) not in loaded._shared.contents
    with pytest.raises(DeviceError, match="closed"):
        device.predict(PROBES)
