"""A device on real bundles and a real folder: created, taught, replaced, damaged."""

import errno
import json
import os
import sqlite3

import numpy as np
import pytest

import bundles
from device_setups import LABELS, PROBES, SETUPS, TEXTS, files_of, user_of, write_setups
from devices import sql
from fala.backbones import OnnxEncoder
from fala.bundle.reading import Bundle
from fala.device import Device
from fala.errors import (
    BundleDigestError,
    BundleError,
    BundleMismatchError,
    DataError,
    DeviceError,
    FalaError,
)
from fala.examples import Match, unique_texts
from fala.personal.budget import Budget
from fala.testing import counted, failing_disk


@pytest.fixture(scope="module")
def releases(tmp_path_factory):
    return write_setups(tmp_path_factory.mktemp("releases"))


@pytest.fixture
def device(tmp_path, releases):
    with Device.create(tmp_path / "device", releases["binary"][0]) as device:
        yield device


@pytest.mark.parametrize("name", SETUPS)
def test_from_vendor_to_personal_to_the_new_backbone(name, tmp_path, releases, encoded):
    old, new, _ = releases[name]
    examples, labels, probes = user_of(name)
    path = tmp_path / "device"
    with Device.create(path, old) as device:
        opened = Bundle.open(old)
        head, backbone = opened.head(), opened.backbone()
        texts = unique_texts(probes)
        inputs = head.inputs(probes, dict(zip(texts, backbone.encode(texts), strict=True)))
        vendor = device.predict(probes)
        np.testing.assert_array_equal(vendor, head.vendor_model().probabilities(inputs))
        assert device.model.is_vendor
        assert (device.task, device.labels) == (head.task, head.labels)
        assert device.predict([]).shape == (0, len(head.labels))

        def share():
            decided = device.predict(examples).argmax(axis=1)
            return np.mean([device.labels[i] == y for i, y in zip(decided, labels, strict=True)])

        before = share()
        learned = device.learn(examples, labels)
        assert (learned.examples, learned.labelled, learned.fitted) == (len(examples),) * 3
        assert share() > before
        personal = device.predict(probes)
        assert np.abs(personal - vendor).max() > 0.01
        np.testing.assert_allclose(personal.sum(axis=1), 1)
    with Device.open(path) as device:
        np.testing.assert_array_equal(device.predict(probes), personal)
        assert not device.can_roll_back

        report = device.replace(new, Budget(40))
        assert len(encoded) - report.counts.probes == report.forward_passes <= 40
        assert set(report.seconds) >= {"open", "read", "select", "forward", "commit", "total"}
        json.dumps(report.to_dict())
        replaced = device.predict(probes)
        assert report.decision != "vendor" and not device.model.is_vendor
        # Labels and the teacher's logits together, on the new backbone.
        relearned = device.learn(examples[:5], labels[:5])
        assert relearned.fitted >= report.counts.representatives
        assert np.isfinite(device.predict(probes)).all()
        after = device.predict(probes)
    with Device.open(path) as device:
        np.testing.assert_array_equal(device.predict(probes), after)
        device.rollback()
        np.testing.assert_array_equal(device.predict(probes), personal)
    with Device.open(path) as device:
        np.testing.assert_array_equal(device.predict(probes), personal)
        device.rollback()
        np.testing.assert_array_equal(device.predict(probes), after)
    assert replaced.shape == after.shape


def test_learning_what_there_is(device):
    vendor = device.predict(PROBES)
    nothing = device.learn(TEXTS[:10])
    assert (nothing.examples, nothing.labelled, nothing.fitted) == (10, 0, 0)
    assert nothing.scales == ()
    np.testing.assert_array_equal(device.predict(PROBES), vendor)
    some = device.learn(TEXTS[:10], ["1", None] * 5)
    assert (some.examples, some.labelled, some.fitted) == (10, 5, 5)
    # One class only: nothing runs off to infinity.
    assert np.abs(device.model.weight).max() < 1e3
    assert device.predict(TEXTS[:10:2])[:, 1].mean() > 0.5
    # Integers spell labels; a new label replaces the earlier one, None leaves it.
    again = device.learn(TEXTS[:10], [np.int64(0), None] * 5)
    assert (again.examples, again.labelled) == (10, 5)
    assert device.predict(TEXTS[:10:2])[:, 1].mean() < 0.5
    kept = device.learn(TEXTS[:10])
    assert kept.labelled == 5
    assert device.learn([]).examples == 10


@pytest.mark.parametrize(
    ("examples", "labels", "message"),
    [
        (["good", "bad"], ["1", "2"], "label '2' of example 1"),
        (["good", Match((), "bad")], None, "example 1 is a Match"),
        (["good", "bad"], ["1"], "2 examples, but 1 labels"),
        (["good"], [True], "label 'True'"),
    ],
)
def test_what_cannot_be_learned_is_not_kept(device, examples, labels, message):
    vendor = device.predict(PROBES)
    with pytest.raises(DataError, match=message):
        device.learn(examples, labels)
    assert device.learn([]).examples == 0
    np.testing.assert_array_equal(device.predict(PROBES), vendor)


def test_a_release_for_others_changes_nothing(device, tmp_path, releases):
    device.learn(TEXTS, LABELS)
    files, answers = files_of(tmp_path / "device"), device.predict(PROBES)
    damaged = tmp_path / "damaged.fala"
    data = bytearray(releases["binary"][1].read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    backbone = tmp_path / "backbone.fala"
    bundles.write_onnx(backbone)
    for path, error in [
        (releases["three"][1], BundleMismatchError),
        (releases["matcher"][1], BundleMismatchError),
        (backbone, BundleMismatchError),
        (damaged, BundleDigestError),
        (tmp_path / "missing.fala", BundleError),
    ]:
        with pytest.raises(error, match=path.name):
            device.replace(path)
        assert files_of(tmp_path / "device") == files
        np.testing.assert_array_equal(device.predict(PROBES), answers)
        assert not device.can_roll_back
    with Device.open(tmp_path / "device") as again:
        np.testing.assert_array_equal(again.predict(PROBES), answers)
        assert again.learn([]).examples == len(TEXTS)


def test_an_embedding_too_large_refuses_the_release(device, tmp_path, releases, monkeypatch):
    device.learn(TEXTS, LABELS)
    files, answers = files_of(tmp_path / "device"), device.predict(PROBES)
    real = OnnxEncoder.encode
    with monkeypatch.context() as patch:
        patch.setattr(OnnxEncoder, "encode", lambda self, texts: real(self, texts) * 1e6)
        with pytest.raises(DataError, match="float16"):
            device.replace(releases["binary"][1])
    assert files_of(tmp_path / "device") == files
    np.testing.assert_array_equal(device.predict(PROBES), answers)
    assert device.replace(releases["binary"][1]).counts.representatives == len(TEXTS)


def test_a_chain_keeps_what_its_slots_need(tmp_path, releases, encoded):
    old, new, newer = releases["binary"]
    path = tmp_path / "device"

    def provenance(table, column):
        db = sqlite3.connect(path / "store.sqlite3")
        try:
            return {digest for (digest,) in db.execute(f"SELECT DISTINCT {column} FROM {table}")}
        finally:
            db.close()

    digests = [Bundle.open(bundle).backbone_digest for bundle in (old, new, newer)]
    with Device.create(path, old) as device:
        device.learn(TEXTS, LABELS)
        encoded.clear()
        first = device.replace(new, Budget(40))
        passed = set(encoded[:40])
        assert (first.decision, first.counts.representatives, first.waiting) == ("personal", 40, 50)
        assert provenance("embeddings", "backbone") == set(digests[:2])
        assert len(provenance("logits", "model")) == 2
        middle = device.predict(PROBES)
        encoded.clear()
        second = device.replace(newer, Budget(30))
        # What passed through the middle backbone says most, so it goes first; the rest waits.
        assert (second.examples, second.counts.representatives, second.waiting) == (30, 30, 60)
        seen = set(encoded[: second.forward_passes])
        assert len(seen) == 30 and seen <= passed
        # What the first backbone saw goes with it.
        assert provenance("embeddings", "backbone") == set(digests[1:])
        assert len(files_of(path)) == 2
        device.rollback()
        np.testing.assert_array_equal(device.predict(PROBES), middle)
        assert device.learn([]).fitted == first.counts.representatives
        encoded.clear()
        third = device.replace(newer, Budget(30))
        # Known embeddings count whatever the budget, which buys others.
        assert third.forward_passes == len(encoded) - third.counts.probes == 30
        assert not seen & set(encoded[:30])
        assert third.counts.representatives == 60
        # The same release again: new from itself, and the rest of the texts.
        again = device.replace(newer)
        assert (again.examples, again.forward_passes) == (90, 30)
        assert len(files_of(path)) == 2
        device.rollback()
        np.testing.assert_array_equal(device.predict(PROBES), middle)
        device.rollback()


def test_a_damaged_earlier_release_is_not_rolled_back_to(device, tmp_path, releases):
    old, new, _ = releases["binary"]
    (installed,) = (tmp_path / "device" / "bundles").iterdir()
    device.replace(new)
    answers = device.predict(PROBES)
    installed.write_bytes(old.read_bytes()[:-100])
    with pytest.raises(BundleError, match=installed.name):
        device.rollback()
    np.testing.assert_array_equal(device.predict(PROBES), answers)
    with Device.open(tmp_path / "device") as again:
        np.testing.assert_array_equal(again.predict(PROBES), answers)
    # Installing the release anew mends it.
    assert device.replace(old).new == "tiny vectors"
    assert installed.read_bytes() == old.read_bytes()
    device.predict(PROBES)


def test_a_damaged_active_release_is_named(device, tmp_path, releases):
    device.close()
    (installed,) = (tmp_path / "device" / "bundles").iterdir()
    installed.write_bytes(releases["binary"][1].read_bytes())
    with pytest.raises(DeviceError, match="not the bundle that was installed"):
        Device.open(tmp_path / "device")
    installed.unlink()
    with pytest.raises(BundleError, match="no such file"):
        Device.open(tmp_path / "device")


def test_folders_that_are_no_devices(device, tmp_path, releases):
    old = releases["binary"][0]
    with pytest.raises(DeviceError, match=r"make one with Device\.create"):
        Device.open(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
    with pytest.raises(DeviceError, match=r"not empty; use Device\.open"):
        Device.create(tmp_path / "device", old)
    with pytest.raises(DeviceError, match="not empty; choose another"):
        Device.create(tmp_path, old)
    (tmp_path / "file").write_text("")
    with pytest.raises(DeviceError, match="file"):
        Device.create(tmp_path / "file", old)
    (tmp_path / "empty").mkdir()
    Device.create(tmp_path / "empty", old).close()
    Device.open(tmp_path / "empty").close()


def test_a_disk_that_cannot_be_read_is_no_raw_error(device, monkeypatch):
    folder = device._installed.path
    device.close()
    real, calls = os.stat, 0

    def stat(path, *arguments, **named):
        nonlocal calls
        if isinstance(path, str | os.PathLike) and str(folder) in os.fspath(path):
            calls += 1
            if calls == at:
                raise OSError(errno.EIO, os.strerror(errno.EIO), os.fspath(path))
        return real(path, *arguments, **named)

    def opened():
        Device.open(folder).close()

    monkeypatch.setattr(os, "stat", stat)
    for call in (opened, lambda: Device.examine(folder), lambda: Device.repair(folder)):
        failures = []
        for at in range(1, 100):
            calls = 0
            try:
                call()
            except FalaError as error:
                failures.append(str(error))
            if calls < at:
                break
        assert failures and all("another disk" in text for text in failures)


def test_a_creation_on_a_full_disk_leaves_nothing_or_is_called_again(tmp_path, releases):
    release = releases["binary"][0]
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
        assert np.isfinite(device.predict(PROBES)).all()


def test_a_damaged_name_of_a_slot_is_quoted_in_short(tmp_path, releases):
    path = tmp_path / "device"
    Device.create(path, releases["binary"][0]).close()
    sql(path, f"UPDATE active SET slot = '{'x' * 100_000}'")
    with pytest.raises(DeviceError, match=r"slot x{60} is empty"):
        Device.open(path)


def test_a_damaged_id_of_a_text_is_named(tmp_path, releases):
    with Device.create(tmp_path / "device", releases["binary"][0]) as device:
        device.remember(["good film"])
        sql(tmp_path / "device", f"UPDATE texts SET id = {2**63 - 1}")
        with pytest.raises(DeviceError, match="an id that none can have"):
            device.remember(["bad film"])
