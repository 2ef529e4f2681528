"""A device is created, learns, is replaced and is damaged, on real bundles in a real folder."""

import errno
import os
import shutil
import sys

import numpy as np
import pytest

import bundles
import fala
from bridged import PROBES, TEXTS
from devices import sql
from fala import Budget, Bundle, BundleError, BundleMismatchError, Device, DeviceError, Match
from fala.base.examples import unique_texts
from fala.testing import counted, failing_disk

LABELS = ["1" if "good" in text or "love" in text else "0" for text in TEXTS]
SETUPS = {
    "binary": ("classification", ("0", "1")),
    "three": ("classification", ("a", "b", "c")),
    "matcher": ("matching", ("0", "1")),
}


def user_of(name):
    """Return examples, labels and probes of one setup."""
    if name == "binary":
        return TEXTS, LABELS, PROBES
    if name == "three":
        return TEXTS, ["abc"[len(text) % 3] for text in TEXTS], PROBES
    random = np.random.default_rng(1)
    examples = [
        Match(tuple(random.choice(TEXTS[:15], size=i % 4)), TEXTS[i]) for i in range(len(TEXTS))
    ]
    return examples, LABELS, [Match(tuple(PROBES[:3]), text) for text in PROBES]


def files_of(folder):
    """Return the bytes of a device's bundles, by name, whatever else lies there."""
    return {file.name: file.read_bytes() for file in (folder / "bundles").iterdir()}


@pytest.fixture(scope="module")
def releases(tmp_path_factory):
    """An old and two new releases of every kind, by name."""
    folder = tmp_path_factory.mktemp("releases")
    made = {}
    for name, (task, labels) in SETUPS.items():
        query = name == "matcher"
        old, new, newer = (folder / f"{name}-{age}.fala" for age in ("old", "new", "newer"))
        bundles.write_word_vector_release(old, bundles.make_head(task, labels, query=query))
        bundles.write_onnx_release(new, bundles.make_head(task, labels, seed=5, query=query))
        bundles.write_onnx_release(newer, bundles.make_head(task, labels, seed=6), seed=7)
        made[name] = old, new, newer
    return made


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
        vendor = head.vendor_model().probabilities(inputs)
        np.testing.assert_array_equal(device.predict_proba(probes), vendor)
        assert (device.task, device.labels) == (head.task, head.labels)
        assert device.predict_proba([]).shape == (0, len(head.labels))

        before = np.mean(device.predict(examples) == np.array(labels))
        learned = device.learn(examples, labels)
        assert (learned.examples, learned.labelled, learned.fitted) == (len(examples),) * 3
        assert np.mean(device.predict(examples) == np.array(labels)) > before
        personal = device.predict_proba(probes)
    with Device.open(path) as device:
        np.testing.assert_array_equal(device.predict_proba(probes), personal)
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


def test_an_unusable_release_changes_nothing(device, tmp_path, releases):
    device.learn(TEXTS, LABELS)
    files, p = files_of(tmp_path / "device"), device.predict_proba(PROBES)
    bundles.write_onnx(tmp_path / "backbone.fala")
    for path, error in [
        (releases["three"][1], BundleMismatchError),
        (releases["matcher"][1], BundleMismatchError),
        (tmp_path / "backbone.fala", BundleMismatchError),
        (tmp_path / "missing.fala", BundleError),
    ]:
        with pytest.raises(error, match=path.name):
            device.replace(path)
    assert files_of(tmp_path / "device") == files and not device.status().can_roll_back
    np.testing.assert_array_equal(device.predict_proba(PROBES), p)


def test_a_chain_keeps_only_the_embeddings_of_its_slots(device, tmp_path, releases, encoded):
    def provenance(table, column):
        statement = f"SELECT DISTINCT {column} FROM {table}"
        return {digest for (digest,) in sql(tmp_path / "device", statement)}

    digests = [Bundle.open(bundle).backbone_digest for bundle in releases["binary"]]
    _, new, newer = releases["binary"]
    device.learn(TEXTS, LABELS)
    encoded.clear()
    first = device.replace(new, Budget(40))
    first_texts = set(encoded[:40])
    assert (first.decision, first.counts.representatives, first.waiting) == ("personal", 40, 50)
    assert provenance("embeddings", "backbone") == set(digests[:2])
    assert len(provenance("logits", "model")) == 1
    encoded.clear()
    second = device.replace(newer, Budget(30))
    # Texts that the middle backbone has encoded come first; the others wait.
    assert (second.examples, second.counts.representatives, second.waiting) == (30, 30, 60)
    second_texts = set(encoded[: second.forward_passes])
    assert len(second_texts) == 30 and second_texts <= first_texts
    # Embeddings of the first backbone are deleted, and so is its release.
    assert provenance("embeddings", "backbone") == set(digests[1:])
    assert len(files_of(tmp_path / "device")) == 2


def test_a_rollback_to_a_damaged_release_fails(device, tmp_path, releases):
    old, new, _ = releases["binary"]
    (installed,) = (tmp_path / "device" / "bundles").iterdir()
    device.replace(new)
    p = device.predict_proba(PROBES)
    installed.write_bytes(old.read_bytes()[:-100])
    with pytest.raises(BundleError, match=installed.name):
        device.rollback()
    np.testing.assert_array_equal(device.predict_proba(PROBES), p)
    # Another installation of the release repairs it.
    assert device.replace(old).new == "tiny vectors"
    assert installed.read_bytes() == old.read_bytes()


def test_static_embeddings_need_numpy_alone(device, tmp_path, monkeypatch):
    static = bundles.write_static_release(tmp_path / "static.fala", bundles.make_head()).path
    for library in ("onnxruntime", "tokenizers"):
        monkeypatch.setitem(sys.modules, library, None)
    device.learn(TEXTS, LABELS)
    report = device.replace(static, Budget(0))  # all texts are encoded at no forward pass
    assert (report.decision, report.waiting) == ("personal", 0)
    p = device.predict_proba(PROBES)
    with Device.open(tmp_path / "device") as again:
        np.testing.assert_array_equal(again.predict_proba(PROBES), p)


def test_other_folders_are_rejected(device, tmp_path, releases):
    old = releases["binary"][0]
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
