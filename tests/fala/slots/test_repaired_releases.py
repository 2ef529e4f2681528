"""A repair finds out which release is active."""

import contextlib
import random
import shutil
from itertools import chain

import numpy as np
import pytest

import bundles
from bridged import TEXTS
from devices import closest, damaged_pages, loss, sql, unchecked
from fala import Budget, Bundle, Device
from fala.base.errors import BundleError, BundleMismatchError, DeviceError, OlderReleaseError
from fala.model.links import TAGS
from fala.slots.repair import repair
from fala.store.encryption import PLAIN
from fala.testing import PowerCuts, labels_of, texts, write_releases
from fala_export import write_release
from fala_export.bundle.writing import add_version

STORE = "store.sqlite3"
KEY = bytes(range(32))
#: Positions of damage in a store, spread over its file, and the number of bytes damaged there.
POSITIONS, DAMAGED = 5, 64


@pytest.fixture
def folder(tmp_path, replaced):
    return shutil.copytree(replaced[0], tmp_path / "device")


def file_of(folder, release):
    return folder / "bundles" / f"{Bundle.open(release).digest}.fala"


@pytest.fixture(scope="module", params=["plain", "encrypted"])
def rolled_back(request, tmp_path_factory):
    """Make a device with 60 labels after a replacement and a rollback; return it and its key."""
    base = tmp_path_factory.mktemp("rolled back")
    write_releases(base)
    key = None if request.param == "plain" else lambda: KEY
    known = texts()[:60]
    with Device.create(base / "device", base / "glove.fala", key=key) as device:
        device.learn(known, labels_of(known))
        device.replace(base / "bert.fala", Budget(0))
        device.rollback()
    return base / "device", key


def damaged(data):
    """Yield a store's file with some bytes damaged, and with most of it zeroed or cut off."""
    for number in range(POSITIONS):
        start = number * (len(data) - DAMAGED) // (POSITIONS - 1)
        other = random.Random(number).randbytes(DAMAGED)
        yield "bytes", data[:start] + other + data[start + DAMAGED :]
    half = len(data) // 2
    for start in (0, half):
        yield "zeroed", data[:start] + bytes(half) + data[start + half :]
        yield "cut", data[: start + 1_000]


def test_the_active_release_stays_wherever_the_store_is_damaged(tmp_path, rolled_back):
    """The release that the user went back to stays with all labels: no page alone has them."""
    original, key = rolled_back
    with Device.open(original, key=key) as device:
        labels = {row.example: row.label for row in device.examples()}
        before = device.predict_proba(list(labels))
    changes = []
    for how, data in damaged((original / STORE).read_bytes()):
        folder = shutil.copytree(original, tmp_path / "damaged")
        (folder / STORE).write_bytes(data)
        release = None if how == "bytes" else original.with_name("glove.fala")
        report = Device.repair(folder, release, key=key, unsigned=True)
        assert (report.whole, report.active) == (True, "glove"), how
        with Device.open(folder, key=key) as device:
            status = device.status()
            assert status.release == "glove"
            assert not report.problems or not (status.can_roll_back or status.on_trial)
            if how == "bytes":
                assert {row.example: row.label for row in device.examples()} == labels
                changes.append(np.abs(device.predict_proba(list(labels)) - before).max())
        shutil.rmtree(folder)
    assert np.median(changes) < 1e-5 and max(changes) < 0.05


@pytest.mark.parametrize("how", ["gone", "cut", "another", "a folder"])
def test_the_previous_release_takes_the_place_of_a_lost_one(folder, replaced, releases, how):
    file = file_of(folder, releases["mid"])
    content = releases["new"].read_bytes() if how == "another" else file.read_bytes()[:-100]
    file.unlink()
    if how == "a folder":
        (file / "inside").mkdir(parents=True)
    elif how != "gone":
        file.write_bytes(content)
    report = Device.examine(folder)
    assert (report.whole, report.active) == (False, "old")
    assert "make old active: the release that was active cannot be read" in report.actions
    with pytest.raises((BundleError, DeviceError), match=r"fala-device doctor .*--repair"):
        Device.open(folder)  # examine has changed nothing
    assert Device.repair(folder).whole
    with Device.open(folder) as device:
        assert not file.exists() and closest(device, replaced[1]) < 1e-3
        assert not device.status().can_roll_back and len(list(device.examples())) == 90
        device.replace(releases["mid"], Budget(0))
    assert Device.examine(folder).whole


def test_a_lost_previous_release_changes_no_other(folder, replaced, releases):
    file_of(folder, releases["old"]).write_bytes(b"no bundle")
    report = Device.repair(folder)
    assert (report.whole, report.active) == (True, "mid")
    assert "drop old logits and previous releases" in report.actions
    with Device.open(folder) as device:
        assert closest(device, replaced[2]) < 1e-3 and not device.status().can_roll_back
        with pytest.raises(DeviceError, match="no earlier model"):
            device.rollback()
    assert sql(folder, "SELECT count(*) FROM logits") == [(0,)]


@pytest.mark.parametrize(
    ("lost", "rolled_back"),
    [(lost, rolled_back) for rolled_back in (False, True) for lost in (
        "DELETE FROM slots", "DELETE FROM active", "DELETE FROM tasks",
    )]
    + [(lost, True) for lost in (
        "UPDATE active SET slot = 'c'", "UPDATE active SET slot = x'00', previous = x'ff'",
        "UPDATE slots SET bundle = 'none'", "UPDATE slots SET labels = '{'",
        "UPDATE slots SET weight = zeroblob(length(weight))", "UPDATE slots SET model = 'another'",
        "UPDATE tasks SET bundle = x'00'", "UPDATE tasks SET labels = 'none'",
        "UPDATE active SET generation = 'none'", "UPDATE active SET data = -1",
    )],
)  # fmt: skip
def test_one_of_two_records_of_the_release_is_enough(folder, replaced, lost, rolled_back):
    if rolled_back:
        with Device.open(folder) as device:
            device.rollback()
    unchecked(folder, lost)
    report = Device.repair(folder)
    name = "old" if rolled_back else "mid"
    assert (report.whole, report.active) == (True, name)
    if report.problems:
        assert f"fit the personal model again, on {name}" in report.actions
    with Device.open(folder) as device:
        assert closest(device, replaced[1 if rolled_back else 2]) < 0.05
        assert not device.model.is_vendor and not device.status().on_trial


def test_a_repair_without_a_release_needs_a_bundle(folder, releases):
    for file in (folder / "bundles").iterdir():
        file.write_bytes(b"no bundle")
    for report in (Device.examine(folder), Device.repair(folder)):
        assert not report.whole and report.active is None and report.examples == 90
        assert any("--bundle" in action for action in report.actions)
    report = Device.repair(folder, releases["old"])
    assert (report.whole, report.active) == (True, "old")
    with Device.open(folder) as device:
        assert len(list(device.examples())) == 90 and not device.model.is_vendor
    assert len(list((folder / "bundles").iterdir())) == 1


def test_a_bundle_is_taken_only_where_none_is_whole(folder, releases):
    """A bundle in the folder that the device does not name is none of its releases."""
    copy = shutil.copytree(folder, folder.with_name("copy"))
    unchecked(folder, "UPDATE slots SET weight = x'00'")
    assert Device.repair(folder, releases["new"]).active == "mid"
    unchecked(copy, "DELETE FROM active", "DELETE FROM tasks")
    assert Device.repair(copy).active is None
    assert Device.repair(copy, releases["new"]).active == "new"


def test_a_name_that_is_no_digest_is_no_release(folder):
    """The error's message does not grow with the name."""
    name = f"../{'x' * 5000}"
    unchecked(folder, f"UPDATE tasks SET bundle = '{name}'", f"UPDATE slots SET bundle = '{name}'")
    report = Device.repair(folder)
    assert not report.whole and len("".join(report.problems)) < 500


@pytest.mark.parametrize("damage", ["UPDATE slots SET weight = x'00'", "DELETE FROM tasks"])
def test_labels_stay_in_the_devices_order(tmp_path, damage):
    """The columns of predictions have this order."""
    head = bundles.make_head(labels=("0", "1"))
    first = bundles.write_word_vector_release(tmp_path / "first.fala", head)
    write_release(tmp_path / "turned.fala", first, head.in_order(["1", "0"]), {})
    with Device.create(tmp_path / "device", first.path) as device:
        device.learn(["good film", "bad plot", "good plot"], ["1", "0", "1"])
        device.replace(tmp_path / "turned.fala", Budget(0))
        before = device.predict_proba(["good", "bad"])
    unchecked(tmp_path / "device", damage, "UPDATE active SET data = -1")
    assert Device.repair(tmp_path / "device").whole
    with Device.open(tmp_path / "device") as device:
        assert device.labels == ("0", "1")
        np.testing.assert_allclose(device.predict_proba(["good", "bad"]), before, atol=1e-5)


@pytest.fixture
def versions(tmp_path):
    """Write two versions of a product and a release of another; make a device of the second."""
    plain = bundles.write_word_vector_release(tmp_path / "plain.fala")
    for version, product in ((1, "news"), (2, "news"), (3, "films")):
        add_version(tmp_path / f"{version}.fala", plain, version, product)
    with Device.create(tmp_path / "device", tmp_path / "1.fala") as device:
        device.learn(["good film", "bad plot"], ["1", "0"])
        device.replace(tmp_path / "2.fala", Budget(0))
        device.rollback()
    return tmp_path


@pytest.mark.parametrize("lost", [["device"], ["trusted"], ["device", "trusted"]], ids=str)
def test_an_older_release_is_rejected_after_a_repair(versions, lost):
    """This also holds where the newest one is not active, and its record is lost."""
    folder = versions / "device"
    damaged_pages(folder, *lost)
    assert Device.repair(folder, unsigned=len(lost) == 2).active.startswith("news v1")
    with Device.open(folder) as device, pytest.raises(OlderReleaseError, match="has had version 2"):
        device.replace(versions / "1.fala")


def test_a_repair_takes_no_older_or_other_release(versions):
    folder = versions / "device"
    for file in (folder / "bundles").iterdir():
        file.write_bytes(b"no bundle")
    for name, match in (("1", "has had version 2 already"), ("3", "has had one of news")):
        with pytest.raises(OlderReleaseError, match=match):
            Device.repair(folder, versions / f"{name}.fala")
    assert Device.repair(folder, versions / "2.fala").whole


@pytest.mark.parametrize("keep_text", ["never", "always"])
def test_what_cannot_be_encoded_again_is_kept(tmp_path, releases, labels, truth, keep_text):
    """The repair keeps embeddings of both backbones, and which label is the positive one."""
    path = tmp_path / "device"
    with Device.create(path, releases["old"], keep_text=keep_text, positive="0") as device:
        device.learn(TEXTS[:60], labels[:60])
        device.remember(TEXTS[60:])
        device.replace(releases["mid"], Budget(0))
        before = loss(device, truth)
    unchecked(path, "UPDATE slots SET weight = x'00'")
    assert Device.repair(path).labelled == 60
    with Device.open(path) as device:
        assert (device.positive, device.fit().fitted) == ("0", 60)
        assert loss(device, truth) == pytest.approx(before, abs=0.05)


def test_a_failing_fit_loses_no_example(folder):
    """The vendor's model is active until the next fit."""

    def fit(folder):
        raise DeviceError("no fit")

    unchecked(folder, "UPDATE slots SET weight = x'00'")
    assert repair(folder, PLAIN, fit).whole
    with Device.open(folder) as device:
        assert device.model.is_vendor and len(list(device.examples())) == 90
        device.learn([])
        assert not device.model.is_vendor


@pytest.mark.slow
@pytest.mark.parametrize("unsynced", [pytest.param("kept", marks=pytest.mark.thorough), "some"])
def test_a_killed_repair_is_not_done_or_whole(tmp_path, folder, unsynced):
    """The personal models are fitted before the new store takes its place."""
    unchecked(folder, "UPDATE slots SET weight = x'00'")
    cuts = PowerCuts(lambda path, _: Device.repair(path), folder, scratch=tmp_path)
    ends = cuts.at_operations({"rename"}, unsynced=unsynced)
    for cut in chain(ends, cuts.at_operations({"sync", "write"}, count=8, unsynced=unsynced)):
        with contextlib.suppress(DeviceError), Device.open(cut.folder):
            pass  # finishes it, if the new store is complete
        if not Device.examine(cut.folder).whole:
            assert Device.repair(cut.folder).whole
        with Device.open(cut.folder) as device:
            assert device.status().release == "mid"
            assert len(list(device.examples())) == 90 and not device.model.is_vendor


@pytest.mark.parametrize(
    ("head", "labels_known"),
    [
        (bundles.make_head(labels=("fine", "rude")), False),
        (bundles.make_head(labels=("1", "2")), True),
        (bundles.make_head(labels=("0", "1", "2"), link=TAGS), False),
        (bundles.make_head("matching"), False),
    ],
    ids=["labels", "fewer labels", "tags", "pairs"],
)
def test_a_repair_takes_no_release_of_other_examples(tmp_path, head, labels_known):
    first, folder = bundles.write_word_vector_release(tmp_path / "first.fala"), tmp_path / "device"
    with Device.create(folder, first.path) as device:
        # The head of fewer labels has all that the user gave, but not all that the device knows.
        given = [1, 1] if labels_known else [1, 0]
        device.learn([f"{word} {n}" for n in range(20) for word in ("good", "bad")], given * 20)
    (damaged,) = (folder / "bundles").iterdir()
    damaged.write_bytes(b"no bundle")
    if not labels_known:
        unchecked(folder, "UPDATE slots SET labels = x'00'", "UPDATE tasks SET labels = 7")
    other = bundles.write_word_vector_release(tmp_path / "other.fala", head)
    with pytest.raises(BundleMismatchError, match="this device has other examples or labels"):
        Device.repair(folder, other.path)
    assert not Device.examine(folder).whole and damaged.read_bytes() == b"no bundle"
    three = bundles.make_head(labels=("0", "1", "2"))
    right = bundles.write_word_vector_release(tmp_path / "right.fala", three)
    report = Device.repair(folder, right.path)
    assert report.whole and report.labelled == 40
    with Device.open(folder) as device:
        assert not device.model.is_vendor and device.labels == ("0", "1", "2")
