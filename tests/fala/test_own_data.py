"""The user's data can be exported and erased."""

import errno
import io
import os
import shutil
import stat

import pytest

import bridged
from bridged import PROBES, TEXTS
from devices import sql
from fala import DataError, Device, DeviceError, Match, Pair
from fala.testing import PowerCuts
from fala_export.rows.user_rows import read_rows

SPECIAL = ["é\u2028\x85 new lines\r\n and \0 and \U0001f600", 'quotes " and \\ too', "\ufeffmark"]


def test_exported_rows_are_all_examples(device, tmp_path):
    pairs = [Pair(TEXTS[0], TEXTS[1]), Pair(TEXTS[2], TEXTS[3])]
    device.learn([*SPECIAL, *pairs], ["1", None, "0", "1", "0"])
    expected = [(row.example, row.label) for row in device.examples()]
    assert [example for example, _ in expected[-2:]] == pairs
    before = os.umask(0)
    try:
        assert device.export_data(tmp_path / "mine.jsonl") == len(expected)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "mine.jsonl").stat().st_mode) == 0o600
    with (tmp_path / "mine.jsonl").open("rb") as stream:
        rows = read_rows(stream)
    assert [(row.example, row.label) for row in rows] == expected
    assert {(row.user, row.split) for row in rows} == {("me", "train")}
    assert [type(row.example) for row in rows[-2:]] == [Pair, Pair]
    text, data = io.StringIO(), io.BytesIO()
    device.export_data(text, user="u1")
    device.export_data(data, user="u1")
    assert text.getvalue().encode() == data.getvalue()
    assert {row.user for row in read_rows(data.getvalue().splitlines(keepends=True))} == {"u1"}
    assert device.forget(pairs[:1]).count == 1


def test_matches_are_exported(tmp_path):
    releases = bridged.write_releases(tmp_path, "matching", labels=("no", "yes"))
    matches = [Match((), TEXTS[0]), Match(tuple(TEXTS[:3]), TEXTS[4])]
    with Device.create(tmp_path / "device", releases["old"]) as device:
        device.learn(matches, ["no", None])
        stream = io.BytesIO()
        assert device.export_data(stream) == 2
    rows = read_rows(stream.getvalue().splitlines())
    assert [(row.example, row.label) for row in rows] == [(matches[0], "no"), (matches[1], None)]


def test_unwritable_targets_are_rejected(device, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for target in (None, 5, tmp_path / "no" / "folder", tmp_path, "a\0b", pipe):
        with pytest.raises(DataError):
            device.export_data(target)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["device", "pipe"]


def test_a_stream_that_writes_a_part_gets_all_rows(device):
    """A file without a buffer may; a stream that takes nothing, as a full pipe, is an error."""
    whole, written = io.BytesIO(), io.BytesIO()

    class Parts(io.RawIOBase):
        def write(self, data):
            return written.write(data[:most]) or None

    most = 7
    assert device.export_data(Parts()) == device.export_data(whole)
    assert written.getvalue() == whole.getvalue()
    most = 0
    with pytest.raises(DataError, match="BlockingIOError"):
        device.export_data(Parts())


def test_erase_deletes_all_data_but_no_other_files(device, path):
    """No other object of the device makes its files again."""
    sql(path, "UPDATE examples SET label = x'ff' WHERE id = 3")
    device.close()
    assert Device.repair(path).aside
    device, second = Device.open(path), Device.open(path)
    (path / "updates" / "metadata").mkdir(parents=True)
    (path / "updates" / "metadata" / "root.json").write_text("{}")
    (path / "mine.txt").write_text("the app's own")
    (path / "store.sqlite3 of another").mkdir()
    streams = [file.open("rb") for file in path.glob("*store*") if file.is_file()]
    device.erase()
    for stream in streams:  # a file that is still open is empty
        with stream:
            content = stream.read()
        assert not any(text.encode() in content for text in TEXTS)
    calls = (
        lambda opened: opened.remember(["late"]), lambda opened: opened.learn(["late"]),
        lambda opened: opened.forget([1]), lambda opened: [*opened.examples()],
        lambda opened: opened.predict_proba(PROBES),
    )  # fmt: skip
    for opened, why in (
        (device, r"closed: it was erased; make another with .*create"),
        (second, "repaired or erased meanwhile"),
    ):
        for call in calls:
            with pytest.raises(DeviceError, match=why):
                call(opened)
        opened.close()
    assert {file.name for file in path.iterdir()} == {"mine.txt", "store.sqlite3 of another"}


def test_a_closed_device_opens_no_file(device, path):
    device.close()
    for file in path.glob("store.sqlite3.*"):
        file.unlink()
    for call in (lambda: device.forget([1]), device.fit, lambda: device.rotate_key(lambda: b"")):
        with pytest.raises(DeviceError, match="is closed"):
            call()
    assert not [*path.glob("store.sqlite3.*")]


def test_erase_deletes_what_took_the_place_of_its_folders(device, path, releases):
    shutil.rmtree(path / "bundles")
    for inner in ("bundles", "updates"):
        (path / inner).write_bytes(b"a file")
    device.erase()
    assert not path.exists()
    Device.create(path, releases["old"]).close()


def test_erase_without_a_folder_is_an_error(device, path):
    shutil.rmtree(path)
    path.write_bytes(b"a file that took its place")
    with pytest.raises(DeviceError, match="Not a directory"):
        device.erase()
    assert path.is_file()


def test_opening_the_folder_completes_a_killed_erasure(device, path, tmp_path):
    def erase(folder, report):
        with Device.open(folder) as device:
            device.erase()

    device.close()
    whole = finished = 0
    cuts = PowerCuts(erase, path, scratch=tmp_path)
    for cut in cuts.at_operations({"create", "sync", "delete"}, count=12):
        begun = (cut.folder / "erasing-store.sqlite3").exists()
        if not cut.folder.exists():
            continue
        try:
            with Device.open(cut.folder) as opened:
                assert not begun and len([*opened.examples()]) == len(TEXTS)
            whole += 1
        except DeviceError as error:
            assert not begun or "was erased; make another" in str(error)
            assert not cut.folder.exists() or not any(cut.folder.iterdir())
            finished += begun
    assert whole and finished > 5


def test_a_failed_erasure_can_be_repeated(device, path, monkeypatch):
    def failing(*arguments):
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", failing)
        with pytest.raises(DeviceError, match="Permission denied; erase it again"):
            device.erase()
    device.erase()
    assert not path.exists()
