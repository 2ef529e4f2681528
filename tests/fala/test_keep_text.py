"""A device that keeps no texts writes none to the disk, and a bridge maps its embeddings."""

import io

import pytest

import bridged
from bridged import TEXTS
from devices import assert_close, left_of, live, same, sql, state
from fala import Budget, DataError, Device, DeviceError, Stopped
from fala.store.texts import NAME, NOT_KEPT

pytestmark = pytest.mark.slow

KEY = bytes(range(32))


@pytest.fixture
def silent(tmp_path, releases, labels):
    with Device.create(tmp_path / "silent", releases["old"], keep_text="never") as device:
        device.learn(TEXTS, labels)
        yield device


def test_over_a_bridge_it_equals_a_device_with_texts(tmp_path, releases, labels):
    """They agree within ``TOLERANCE``, as batches of texts and the order of rows differ."""
    with (
        Device.create(tmp_path / "always", releases["old"]) as always,
        Device.create(tmp_path / "never", releases["old"], keep_text="never") as never,
    ):
        # A rollback of a device with texts encodes later texts if that is free.
        expected, states = (live(device, releases, labels, 0) for device in (always, never))
        rows, never_rows = ([(row.id, row.label) for row in d.examples()] for d in (always, never))
        assert never_rows == rows
        for values, reference in zip(states[:3], expected[:3], strict=True):
            assert_close(values, reference)
    with Device.open(tmp_path / "never") as again:
        assert same(state(again), states[-1])


def test_no_text_of_a_match_is_on_the_disk(tmp_path):
    """The match is learned, and carried over, as by a device with texts."""
    releases, results = bridged.write_releases(tmp_path, task="matching"), []
    rows = bridged.matches()
    for keep_text in ("always", "never"):
        with Device.create(tmp_path / keep_text, releases["old"], keep_text=keep_text) as device:
            device.learn(rows, bridged.planted_labels(releases["old"], rows))
            device.replace(releases["mid"], Budget(0))
            results.append((device.predict_proba(rows), device.model.weight))
    assert_close(*results)
    assert not left_of(tmp_path / "never", TEXTS)


def test_a_replacement_without_a_bridge_reports_missing_texts(tmp_path, unbridged, labels):
    with Device.create(tmp_path / "device", unbridged["old"], keep_text="never") as device:
        device.learn(TEXTS, labels)
        before = state(device)
        preview = device.preview(unbridged["mid"])
        report = device.replace(unbridged["mid"])
        assert (report.decision, preview.decision) == ("vendor", "vendor")
        assert report.forward_passes == preview.forward_passes == 0
        assert NOT_KEPT in str(report) and "a bridge" in str(report)
        assert report.waiting == len(TEXTS) and report.stopped is Stopped.NOT_KEPT
        refined = device.refine(Budget(50))
        assert refined.forward_passes == 0 and NOT_KEPT in str(refined)
        # Texts that are learned again are no new examples.
        learned = device.learn(TEXTS, labels)
        assert (learned.examples, learned.fitted) == (len(TEXTS), len(TEXTS))
        device.rollback()
        assert same(state(device), before)


def test_examples_are_encoded_when_they_are_kept(tmp_path, releases, labels):
    """They make the same model within ``TOLERANCE``, whether they are learned or remembered."""
    states = []
    for method in (Device.learn, Device.remember):
        folder = tmp_path / method.__name__
        with Device.create(folder, releases["mid"], keep_text="never") as device:
            method(device, TEXTS, labels)
            assert len(sql(folder, "SELECT 1 FROM embeddings")) == len(TEXTS)
            assert device.fit().fitted == len(TEXTS)
            states.append(state(device))
    assert_close(*states)


def test_examples_have_no_text(silent, labels):
    rows = [*silent.examples()]
    assert [(row.id, row.label, row.example) for row in rows] == [
        (number, label, None) for number, label in enumerate(labels, 1)
    ]
    names = sql(silent._folder.path, "SELECT text FROM texts")
    assert all(NAME.fullmatch(name) for (name,) in names)
    opposite = "1" if labels[0] == "0" else "0"
    silent.learn(TEXTS[:1], [opposite])
    assert [row.label for row in silent.examples()] == [opposite, *labels[1:]]
    assert silent.forget([1, 2, 3]).count == 3
    assert silent.forget(where=lambda row: row.label == "1" or row.example is not None).count
    assert {row.label for row in silent.examples()} == {"0"}
    target = io.StringIO()
    with pytest.raises(DataError, match="no text to write"):
        silent.export_data(target)
    assert not target.getvalue()


@pytest.mark.parametrize("damage", ["text_key = NULL", "text_key = x'00'", "keep_text = 'lost'"])
def test_a_damaged_setting_is_an_error_until_a_repair(silent, damage):
    """The repair cannot know the digests' key, so a text that is learned again is another one."""
    folder = silent._folder.path
    silent.close()
    sql(folder, f"UPDATE device SET {damage}")
    with Device.open(folder) as device:
        for call in (device.learn, device.remember):
            with pytest.raises(DeviceError, match="settings are damaged"):
                call(["one more text"], ["1"])
    assert not Device.examine(folder).whole
    assert Device.repair(folder).whole and Device.examine(folder).whole
    with Device.open(folder) as device:
        assert device.learn([TEXTS[0]], ["1"]).examples == len(TEXTS) + 1
        device.learn(["one more text"], ["1"])
    assert not left_of(folder, [*TEXTS, "one more text"])
    assert sql(folder, "SELECT keep_text FROM device") == [("never",)]


def test_a_repair_keeps_the_setting(silent):
    folder = silent._folder.path
    silent.close()
    sql(folder, "UPDATE embeddings SET vector = x'00' WHERE text = 1")
    assert Device.repair(folder).whole
    with Device.open(folder) as device:
        assert device.learn([TEXTS[0]], ["1"]).examples == len(TEXTS)


def test_digests_are_encrypted(tmp_path, releases, labels):
    path = tmp_path / "device"
    with Device.create(path, releases["old"], keep_text="never", key=lambda: KEY) as device:
        device.learn(TEXTS, labels)
        device.rotate_key(lambda: KEY[::-1])
    with Device.open(path, key=lambda: KEY[::-1]) as device:
        assert device.learn(TEXTS[:3], labels[:3]).examples == len(TEXTS)
        assert device.replace(releases["mid"], Budget(0)).decision == "personal"
        assert {row.example for row in device.examples()} == {None}
    values = [text for row in sql(path, "SELECT text, sealed FROM texts") for text in row]
    assert not any(b"hmac" in (v if isinstance(v, bytes) else v.encode()) for v in values)
