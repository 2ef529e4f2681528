"""A device is created, learns, is replaced and is damaged, on real bundles in a real folder."""

import errno
import os
import shutil
import sys
from functools import partial

import numpy as np
import pytest

import bridged
import bundles
import fala
from bridged import PROBES, TEXTS
from devices import sql
from fala import Budget, Bundle, BundleError, BundleMismatchError, Device, DeviceError
from fala.testing import counted, failing_disk


def files_of(folder):
    """Return the bytes of a device's bundles, by name, whatever else lies there."""
    return {file.name: file.read_bytes() for file in (folder / "bundles").iterdir()}


@pytest.fixture
def device(tmp_path, unbridged):
    with Device.create(tmp_path / "device", unbridged["old"]) as device:
        yield device


@pytest.mark.parametrize(
    ("task", "labels"), [("classification", ("a", "b", "c")), ("matching", ("0", "1"))]
)
def test_any_head_lives_through_a_replacement_without_a_bridge(tmp_path, encoded, task, labels):
    query = task == "matching"
    releases = bridged.write_releases(tmp_path, task, labels, query, bridges=False)
    examples = [*dict.fromkeys(bridged.matches())] if query else TEXTS
    taught = bridged.planted_labels(releases["old"], examples)
    with Device.create(tmp_path / "device", releases["old"]) as device:
        device.learn(examples, taught)
        personal = device.predict_proba(examples)
        encoded.clear()
        report = device.replace(releases["mid"], Budget(40))
        assert len(encoded) - report.counts.probes == report.forward_passes <= 40
        assert set(report.seconds) >= {"open", "read", "select", "forward", "commit", "total"}
        assert report.decision != "vendor" and not device.model.is_vendor
        # The new model is fitted to labels and old logits together.
        assert device.learn(examples[:5], taught[:5]).fitted >= report.counts.representatives
        device.rollback()
        np.testing.assert_array_equal(device.predict_proba(examples), personal)


def test_an_unusable_release_changes_nothing(device, tmp_path):
    device.learn(TEXTS[:20], ["0", "1"] * 10)
    files, p = files_of(tmp_path / "device"), device.predict_proba(PROBES)
    three, matcher = bundles.make_head(labels=("a", "b", "c")), bundles.make_head("matching")
    for path, error in [
        (bundles.write_onnx_release(tmp_path / "three.fala", three).path, BundleMismatchError),
        (bundles.write_onnx_release(tmp_path / "matcher.fala", matcher).path, BundleMismatchError),
        (bundles.write_onnx(tmp_path / "backbone.fala").path, BundleMismatchError),
        (tmp_path / "missing.fala", BundleError),
    ]:
        with pytest.raises(error, match=path.name):
            device.replace(path)
    assert files_of(tmp_path / "device") == files and not device.status().can_roll_back
    np.testing.assert_array_equal(device.predict_proba(PROBES), p)


def test_a_chain_keeps_only_the_embeddings_of_its_slots(
    device, tmp_path, unbridged, labels, encoded
):
    def provenance(table, column):
        statement = f"SELECT DISTINCT {column} FROM {table}"
        return {digest for (digest,) in sql(tmp_path / "device", statement)}

    digests = [Bundle.open(unbridged[age]).backbone_digest for age in ("old", "mid", "new")]
    device.learn(TEXTS, labels)
    encoded.clear()
    first = device.replace(unbridged["mid"], Budget(40))
    first_texts = set(encoded[:40])
    assert (first.decision, first.counts.representatives, first.waiting) == ("personal", 40, 50)
    assert provenance("embeddings", "backbone") == set(digests[:2])
    assert len(provenance("logits", "model")) == 1
    encoded.clear()
    second = device.replace(unbridged["new"], Budget(30))
    # Texts that the middle backbone has encoded come first; the others wait.
    assert (second.examples, second.counts.representatives, second.waiting) == (30, 30, 60)
    second_texts = set(encoded[: second.forward_passes])
    assert len(second_texts) == 30 and second_texts <= first_texts
    # Embeddings of the first backbone are deleted, and so is its release.
    assert provenance("embeddings", "backbone") == set(digests[1:])
    assert len(files_of(tmp_path / "device")) == 2


def test_a_rollback_to_a_damaged_release_fails(device, tmp_path, unbridged):
    old = unbridged["old"]
    (installed,) = (tmp_path / "device" / "bundles").iterdir()
    device.replace(unbridged["mid"])
    p = device.predict_proba(PROBES)
    installed.write_bytes(old.read_bytes()[:-100])
    with pytest.raises(BundleError, match=installed.name):
        device.rollback()
    np.testing.assert_array_equal(device.predict_proba(PROBES), p)
    # Another installation of the release repairs it.
    assert device.replace(old).new == "old"
    assert installed.read_bytes() == old.read_bytes()


def test_static_embeddings_need_numpy_alone(device, tmp_path, labels, monkeypatch):
    static = bundles.write_static_release(tmp_path / "static.fala", bundles.make_head()).path
    for library in ("onnxruntime", "tokenizers"):
        monkeypatch.setitem(sys.modules, library, None)
    device.learn(TEXTS, labels)
    report = device.replace(static, Budget(0))  # all texts are encoded at no forward pass
    assert (report.decision, report.waiting, report.forward_passes) == ("personal", 0, 0)
    p = device.predict_proba(PROBES)
    with Device.open(tmp_path / "device") as again:
        np.testing.assert_array_equal(again.predict_proba(PROBES), p)


def test_other_folders_are_rejected(device, tmp_path, unbridged):
    old = unbridged["old"]
    with pytest.raises(DeviceError, match=r"make one with Device\.create"):
        Device.open(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
    (tmp_path / "file").write_text("")
    for name, message in (
        ("device", r"not empty; use Device\.open"), (".", "not empty; choose another"),
        ("file", "file"),
    ):  # fmt: skip
        with pytest.raises(DeviceError, match=message):
            Device.create(tmp_path / name, old)
    for name in ("a" * 5000, "file/device"):
        for call in (partial(Device.create, bundle=old), Device.open, Device.repair):
            with pytest.raises(DeviceError):
                call(tmp_path / name)
    with pytest.raises(DeviceError) as caught:
        Device.open(tmp_path / "a\x1b[2J\nb")
    assert str(caught.value).isprintable()
    (tmp_path / "empty").mkdir()
    Device.create(tmp_path / "empty", old).close()
    Device.open(tmp_path / "empty").close()


def test_read_errors_of_the_disk_are_fala_errors(device, monkeypatch):
    """Every call that asks the disk about a file fails once."""
    folder = device._folder.path
    device.close()
    original, calls = os.stat, 0

    def stat(path, *arguments, **named):
        nonlocal calls
        if str(folder) in str(path):
            calls += 1
            if calls == at:
                raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return original(path, *arguments, **named)

    monkeypatch.setattr(os, "stat", stat)
    for call in (lambda: Device.open(folder).close(), lambda: Device.examine(folder)):
        for at in range(1, 100):
            calls = 0
            try:
                call()
            except fala.FalaError as error:
                assert "another disk" in str(error)
            if calls < at:
                break
        assert 1 < at < 99


def test_a_store_that_was_copied_without_its_log_is_named(tmp_path, unbridged):
    path, copy = tmp_path / "device", tmp_path / "copy"
    with Device.create(path, unbridged["old"]):
        shutil.copytree(path, copy, ignore=shutil.ignore_patterns("*-wal", "*-shm"))
    with pytest.raises(DeviceError, match=r"copied without store\.sqlite3-wal"):
        Device.open(copy)
    assert "copied without store.sqlite3-wal" in Device.examine(copy).problems[0]


def test_a_creation_on_a_full_disk_can_be_repeated(tmp_path, unbridged):
    release = unbridged["old"]
    with counted(tmp_path / "first") as operations:
        Device.create(tmp_path / "first", release).close()
    copying = [each.number for each in operations if each.path.suffix == ".part"]
    (tmp_path / "empty").mkdir()
    for name, at in (("device", copying[1]), ("empty", copying[1]), ("begun", 4)):
        folder = tmp_path / name
        with failing_disk(folder, at, errno.ENOSPC) as fault, pytest.raises(DeviceError):
            Device.create(folder, release)
        assert fault.failed
    assert not (tmp_path / "device").exists()
    assert list((tmp_path / "empty").iterdir()) == []
    with Device.create(tmp_path / "begun", release) as device:
        assert np.isfinite(device.predict_proba(PROBES)).all()


@pytest.mark.parametrize(
    ("table", "change", "message"),
    [
        ("texts", f"id = {2**63 - 1}", "an id that is out of range"),
        ("active", f"data = {2**63 - 1}", "its count of changes is damaged"),
        ("active", f"slot = '{'x' * 100_000}'", "slot x{60} is empty"),  # quoted briefly
    ],
    ids=["texts", "changes", "slot"],
)
def test_damaged_numbers_and_names_are_errors_until_a_repair(device, table, change, message):
    folder = device._folder.path
    device.remember(["good film"])
    device.close()
    sql(folder, f"UPDATE {table} SET {change}")
    with pytest.raises(DeviceError, match=message), Device.open(folder) as again:
        again.remember(["bad film"])
    assert Device.repair(folder).examples == 1
