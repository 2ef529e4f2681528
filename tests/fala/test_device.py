"""A device is created, learns, is replaced and is damaged, on real bundles in a real folder."""

import errno
import os
import shutil

import numpy as np
import pytest

import bundles
import fala
from device_setups import LABELS, PROBES, SETUPS, TEXTS, files_of, user_of, write_setups
from devices import sql
from fala import Budget, Bundle, BundleError, BundleMismatchError, Device, DeviceError, Match
from fala.base.examples import unique_texts
from fala.testing import counted, failing_disk


@pytest.fixture(scope="module")
def releases(tmp_path_factory):
    return write_setups(tmp_path_factory.mktemp("releases"))


@pytest.fixture
def device(tmp_path, releases):
    with Device.create(tmp_path / "device", releases["binary"][0]) as device:
        yield device


@pytest.mark.parametrize("name", SETUPS)
def test_the_life_of_a_device_with_one_replacement(name, tmp_path, releases, encoded):
    old, new, _ = releases[name]
    examples, labels, probes = user_of(name)
    path = tmp_path / "device"
    with Device.create(path, old) as device:
        head, backbone = Bundle.open(old).head(), Bundle.open(old).backbone()
        texts = unique_texts(probes)
        inputs = head.inputs(probes, dict(zip(texts, backbone.encode(texts), strict=True)))
        vendor = device.predict_proba(probes)
        np.testing.assert_array_equal(vendor, head.vendor_model().probabilities(inputs))
        assert device.model.is_vendor
        assert (device.task, device.labels) == (head.task, head.labels)
        assert device.predict_proba([]).shape == (0, len(head.labels))

        before = np.mean(device.predict(examples) == np.array(labels))
        learned = device.learn(examples, labels)
        assert (learned.examples, learned.labelled, learned.fitted) == (len(examples),) * 3
        assert np.mean(device.predict(examples) == np.array(labels)) > before
        personal = device.predict_proba(probes)
        assert np.abs(personal - vendor).max() > 0.01
        np.testing.assert_allclose(personal.sum(axis=1), 1)
    with Device.open(path) as device:
        np.testing.assert_array_equal(device.predict_proba(probes), personal)
        assert not device.status().can_roll_back

        report = device.replace(new, Budget(40))
        assert len(encoded) - report.counts.probes == report.forward_passes <= 40
        assert set(report.seconds) >= {"open", "read", "select", "forward", "commit", "total"}
        assert report.decision != "vendor" and not device.model.is_vendor
        # The new model is fitted to labels and old logits together.
        relearned = device.learn(examples[:5], labels[:5])
        assert relearned.fitted >= report.counts.representatives
        after = device.predict_proba(probes)
        assert np.isfinite(after).all()
        device.rollback()
        np.testing.assert_array_equal(device.predict_proba(probes), personal)
        device.rollback()
        np.testing.assert_array_equal(device.predict_proba(probes), after)


def test_labels_may_be_missing_and_may_change(device):
    vendor = device.predict_proba(PROBES)
    without_labels = device.learn(TEXTS[:10])
    assert (without_labels.examples, without_labels.labelled, without_labels.fitted) == (10, 0, 0)
    assert without_labels.scales == ()
    np.testing.assert_array_equal(device.predict_proba(PROBES), vendor)
    half_labelled = device.learn(TEXTS[:10], ["1", None] * 5)
    assert (half_labelled.examples, half_labelled.labelled, half_labelled.fitted) == (10, 5, 5)
    # With labels of one class only the weights stay finite.
    assert np.abs(device.model.weight).max() < 1e3
    assert device.predict_proba(TEXTS[:10:2])[:, 1].mean() > 0.5
    # Integers spell labels; a new label replaces the earlier one, None leaves it.
    again = device.learn(TEXTS[:10], [np.int64(0), None] * 5)
    assert (again.examples, again.labelled) == (10, 5)
    assert device.predict_proba(TEXTS[:10:2])[:, 1].mean() < 0.5
    unlabelled = device.learn(TEXTS[:10])
    assert unlabelled.labelled == 5
    assert device.learn([]).examples == 10


@pytest.mark.parametrize(
    ("examples", "labels", "message"),
    [
        (["good", "bad"], ["1", "2"], "label of example 1 is a text of 1 char"),
        (["good", Match((), "bad")], None, "example 1 is a Match"),
        (["good", "bad"], ["1"], "there are 2 examples and 1 label$"),
        (["good", " "], ["0", "1"], "a text of example 1 is blank"),
        ({"good", "bad"}, ["0", "1"], "examples must be a sequence, not a set"),
        (["good", "bad"], {"0", "1"}, "labels must be a sequence, not a set"),
    ],
)
def test_rejected_examples_are_not_kept(device, examples, labels, message):
    vendor = device.predict_proba(PROBES)
    for call in (device.learn, device.remember):
        with pytest.raises(fala.DataError, match=message):
            call(examples, labels)
    assert device.learn([]).examples == 0
    np.testing.assert_array_equal(device.predict_proba(PROBES), vendor)


def test_an_unusable_release_changes_nothing(device, tmp_path, releases):
    device.learn(TEXTS, LABELS)
    files, p = files_of(tmp_path / "device"), device.predict_proba(PROBES)
    damaged, backbone = tmp_path / "damaged.fala", tmp_path / "backbone.fala"
    data = bytearray(releases["binary"][1].read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    bundles.write_onnx(backbone)
    for path, error in [
        (releases["three"][1], BundleMismatchError),
        (releases["matcher"][1], BundleMismatchError),
        (backbone, BundleMismatchError),
        (damaged, fala.BundleDigestError),
        (tmp_path / "missing.fala", BundleError),
    ]:
        with pytest.raises(error, match=path.name):
            device.replace(path)
    assert files_of(tmp_path / "device") == files and not device.status().can_roll_back
    with Device.open(tmp_path / "device") as again:
        np.testing.assert_array_equal(again.predict_proba(PROBES), p)
        assert again.learn([]).examples == len(TEXTS)


def test_a_chain_keeps_only_the_embeddings_of_its_slots(tmp_path, releases, encoded):
    old, new, newer = releases["binary"]
    path = tmp_path / "device"

    def provenance(table, column):
        return {digest for (digest,) in sql(path, f"SELECT DISTINCT {column} FROM {table}")}

    digests = [Bundle.open(bundle).backbone_digest for bundle in (old, new, newer)]
    with Device.create(path, old) as device:
        device.learn(TEXTS, LABELS)
        encoded.clear()
        first = device.replace(new, Budget(40))
        first_texts = set(encoded[:40])
        assert (first.decision, first.counts.representatives, first.waiting) == ("personal", 40, 50)
        assert provenance("embeddings", "backbone") == set(digests[:2])
        assert len(provenance("logits", "model")) == 1
        middle = device.predict_proba(PROBES)
        encoded.clear()
        second = device.replace(newer, Budget(30))
        # Texts that the middle backbone has encoded come first; the others wait.
        assert (second.examples, second.counts.representatives, second.waiting) == (30, 30, 60)
        second_texts = set(encoded[: second.forward_passes])
        assert len(second_texts) == 30 and second_texts <= first_texts
        # Embeddings of the first backbone are deleted.
        assert provenance("embeddings", "backbone") == set(digests[1:])
        assert len(files_of(path)) == 2
        device.rollback()
        np.testing.assert_array_equal(device.predict_proba(PROBES), middle)
        device.rollback()
        # The same release again encodes the rest of the texts.
        again = device.replace(newer)
        assert (again.examples, again.forward_passes) == (90, 60)
        assert len(files_of(path)) == 2
        device.rollback()
        np.testing.assert_array_equal(device.predict_proba(PROBES), middle)


def test_a_rollback_to_a_damaged_release_fails(device, tmp_path, releases):
    old, new, _ = releases["binary"]
    (installed,) = (tmp_path / "device" / "bundles").iterdir()
    device.replace(new)
    p = device.predict_proba(PROBES)
    installed.write_bytes(old.read_bytes()[:-100])
    with pytest.raises(BundleError, match=installed.name):
        device.rollback()
    with Device.open(tmp_path / "device") as again:
        np.testing.assert_array_equal(again.predict_proba(PROBES), p)
    # Another installation of the release repairs it.
    assert device.replace(old).new == "tiny vectors"
    assert installed.read_bytes() == old.read_bytes()
    device.predict_proba(PROBES)


def test_a_damaged_active_release_is_named(device, tmp_path, releases):
    device.close()
    (installed,) = (tmp_path / "device" / "bundles").iterdir()
    installed.write_bytes(releases["binary"][1].read_bytes())
    with pytest.raises(DeviceError, match="not the bundle that was installed"):
        Device.open(tmp_path / "device")
    installed.unlink()
    with pytest.raises(BundleError, match="no such file"):
        Device.open(tmp_path / "device")


def test_other_folders_are_rejected(device, tmp_path, releases):
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


def test_a_store_that_was_copied_without_its_log_is_named(tmp_path, releases):
    path, copy = tmp_path / "device", tmp_path / "copy"
    with Device.create(path, releases["binary"][0]):
        shutil.copytree(path, copy, ignore=shutil.ignore_patterns("*-wal", "*-shm"))
    with pytest.raises(DeviceError, match=r"copied without store\.sqlite3-wal"):
        Device.open(copy)
    assert "copied without store.sqlite3-wal" in Device.examine(copy).problems[0]


def test_a_creation_on_a_full_disk_can_be_repeated(tmp_path, releases):
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
        assert np.isfinite(device.predict_proba(PROBES)).all()


def test_a_damaged_slot_name_is_quoted_briefly(device):
    folder = device._folder.path
    device.close()
    sql(folder, f"UPDATE active SET slot = '{'x' * 100_000}'")
    with pytest.raises(DeviceError, match=r"slot x{60} is empty"):
        Device.open(folder)


@pytest.mark.parametrize(
    ("table", "column", "message"),
    [
        ("texts", "id", "an id that is out of range"),
        ("active", "data", "its count of changes is damaged"),
    ],
)
def test_a_number_without_a_successor_is_damage(device, table, column, message):
    device.remember(["good film"])
    sql(device._folder.path, f"UPDATE {table} SET {column} = {2**63 - 1}")
    with pytest.raises(DeviceError, match=message):
        device.remember(["bad film"])
    device.close()
    assert Device.repair(device._folder.path).examples == 1
