"""Damaged device folders are reported, and a repair restores what it can."""

import contextlib
import os
import shutil
import sqlite3
import stat
import time
from contextlib import closing

import pytest

from bridged import TEXTS
from devices import closest, everything, sql, unchecked
from fala import Budget, Device, DeviceError
from fala.slots.folder import STORE
from fala.store.store import Store


@pytest.fixture
def folder(tmp_path, replaced):
    return shutil.copytree(replaced[0], tmp_path / "device")


@pytest.mark.parametrize("name", [STORE, f"{STORE}-journal"])
def test_a_pipe_instead_of_a_file_is_rejected(folder, name):
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    for call in (Device.open, Device.examine, Device.repair):
        with pytest.raises(DeviceError, match=f"{name}: not a regular file"):
            call(folder)


def test_a_repair_does_not_change_a_whole_folder(folder):
    before, report = everything(folder), Device.examine(folder)
    assert report.whole and not report.problems and not report.actions
    assert (report.active, report.aside) == ("mid", None)
    assert (report.examples, report.labelled, report.lost) == (90, 90, 0)
    assert Device.repair(folder) == report
    assert everything(folder) == before


def test_unreadable_rows_affect_no_other_row(folder, replaced):
    before = {row: (example, label, added) for row, example, label, added in rows_of(folder)}
    ids = [*before]
    unchecked(
        folder,
        f"UPDATE examples SET label = x'ff' WHERE id = {ids[3]}",
        f"UPDATE examples SET document = 999 WHERE id = {ids[4]}",
        f"UPDATE examples SET added = 'yesterday' WHERE id = {ids[5]}",
        "UPDATE embeddings SET vector = x'0102' WHERE text = 9",
        "UPDATE logits SET value = 'none' WHERE example = 11",
    )
    with pytest.raises(DeviceError, match=r"examples are damaged.*doctor"):
        rows_of(folder)
    report = Device.repair(folder)
    assert (report.examples, report.labelled, report.lost) == (90, 88, 1)
    # What is damaged is kept aside, not deleted.
    assert report.aside is not None and (folder / report.aside).is_file()
    after = {row: (example, label, added) for row, example, label, added in rows_of(folder)}
    # The text of the lost row is kept, too, without its label.
    lost, new = before[ids[4]][0], ids[-1] + 1
    assert {*after} == {*ids, new} - {ids[4]} and after[new][:2] == (lost, None)
    assert after[ids[3]][:2] == (before[ids[3]][0], None)
    assert after[ids[5]][:2] == before[ids[5]][:2] and after[ids[5]][2] > time.time() - 60
    kept = {*ids[:3], *ids[6:]}
    assert {row: after[row] for row in kept} == {row: before[row] for row in kept}
    with Device.open(folder) as device:
        assert closest(device, replaced[2]) < 0.1
    assert Device.examine(folder).whole


def test_further_rows_of_a_table_that_has_one_lose_nothing(folder):
    before = rows_of(folder)
    unchecked(
        folder,
        "INSERT INTO device (one, keep_text) VALUES (2, 'always')",
        "INSERT INTO digests (one, sealed) VALUES (2, x'00')",
    )
    assert Device.repair(folder).lost == 0
    assert rows_of(folder) == before
    assert Device.examine(folder).whole


def test_another_key_deletes_the_damaged_store(folder):
    """The damaged store has texts that anybody could read without the new key."""
    unchecked(folder, "UPDATE examples SET label = x'ff' WHERE id = 1")
    aside = folder / Device.repair(folder).aside
    with Device.open(folder) as device:
        device.rotate_key(lambda: bytes(range(32)))
    assert not aside.exists()


def has_dbstat():
    with closing(sqlite3.connect(":memory:")) as db, contextlib.suppress(sqlite3.Error):
        db.execute("SELECT * FROM dbstat")
        return True
    return False


def pages_of(folder, name):
    """Return the pages of the rows of a table, or of an index."""
    query = "SELECT pageno FROM dbstat WHERE name = ? AND pagetype = 'leaf' ORDER BY path"
    return [page for (page,) in sql(folder, query, name)]


def with_page(data, page, content):
    at = (page - 1) * 4096
    return data[:at] + content + data[at + 4096 :]


@pytest.mark.parametrize(
    ("start", "content"),
    [(0, bytes(4096)), (0, bytes(16)), (0, bytes(100)), (2000, b"\xff" * 64), (60, b"\xff" * 4),
     (100, bytes(64))],
    ids=["page", "name", "header", "schema", "version", "fragments"],
)  # fmt: skip
def test_a_damaged_first_page_loses_nothing(folder, replaced, start, content):
    """The page is the same in all stores, but for the number of pages."""
    before = rows_of(folder)
    data = bytearray((folder / STORE).read_bytes())
    data[start : start + len(content)] = content
    (folder / STORE).write_bytes(data)
    files = sorted(folder.iterdir())
    with pytest.raises(DeviceError, match=r"damaged.*doctor|malformed|not a database"):
        Device.open(folder).close()
        Device.open(folder).learn(["later"], ["1"])
    assert not Device.examine(folder).whole and sorted(folder.iterdir()) == files
    report = Device.repair(folder)
    assert (report.whole, report.active, report.lost) == (True, "mid", 0)
    assert (folder / report.aside).read_bytes() == data
    assert rows_of(folder) == before
    with Device.open(folder) as device:
        assert closest(device, replaced[2]) < 1e-3


def rows_of(folder, key=None):
    with Device.open(folder, key=key) as device:
        return [(row.id, row.example, row.label, row.added) for row in device.examples()]


@pytest.fixture(scope="module")
def long_texts(request, tmp_path_factory, releases):
    """Make a device with 400 labelled long texts; return its folder and its key."""
    key = (lambda: bytes(32)) if request.param == "encrypted" else None
    folder = tmp_path_factory.mktemp("long") / "device"
    long = [f"{number} {TEXTS[number % 90]} " * 20 for number in range(400)]
    with Device.create(folder, releases["old"], key=key) as device:
        device.remember(long, [str(number % 2) for number in range(len(long))])
    return folder, key


@pytest.mark.skipif(not has_dbstat(), reason="this SQLite does not tell where tables lie")
@pytest.mark.parametrize("table", ["examples", "texts", "sqlite_autoindex_examples_1", "labels"])
@pytest.mark.parametrize(
    ("long_texts", "how"),
    [("encrypted", "empty"), ("encrypted", "root"), ("plain", "an earlier page")],
    indirect=["long_texts"],
)
def test_damaged_pages_lose_no_example(tmp_path, long_texts, how, table):
    """What a table or an index has lost, the others have."""
    original, key = long_texts
    before = rows_of(original, key)
    file = shutil.copytree(original, tmp_path / "device") / STORE
    data = file.read_bytes()
    leaves = pages_of(tmp_path / "device", table)
    assert len(leaves) > 1
    first = data[(leaves[0] - 1) * 4096 : leaves[0] * 4096]  # whose keys are smaller
    damaged = leaves[1::3]
    if how == "root":
        damaged = sql(file.parent, "SELECT rootpage FROM sqlite_master WHERE name = ?", table)[0]
    for page in damaged:
        data = with_page(data, page, first if how == "an earlier page" else bytes(4096))
    file.write_bytes(data)
    report = Device.repair(file.parent, key=key)
    assert (report.whole, report.examples, report.labelled, report.lost) == (True, 400, 400, 0)
    assert rows_of(file.parent, key) == before


@pytest.mark.skipif(not has_dbstat(), reason="this SQLite does not tell where tables lie")
def test_embeddings_on_both_sides_of_a_damaged_page_are_kept(tmp_path, releases, labels):
    """Embeddings cannot be computed again where texts are not kept."""
    with Device.create(tmp_path / "device", releases["old"], keep_text="never") as device:
        device.learn([f"{text} {number}" for number in range(9) for text in TEXTS], labels * 9)
    leaves = pages_of(tmp_path / "device", "embeddings")
    file = tmp_path / "device" / STORE
    file.write_bytes(with_page(file.read_bytes(), leaves[len(leaves) // 2], bytes(4096)))
    assert Device.repair(file.parent).labelled == 9 * len(TEXTS)
    (count,) = sql(file.parent, "SELECT count(*) FROM embeddings")[0]
    assert len(leaves) > 9 and 0.8 * 9 * len(TEXTS) < count < 9 * len(TEXTS)
    with Device.open(file.parent) as device:
        assert device.fit().fitted == count


def test_a_device_opened_before_a_repair_writes_nothing(folder):
    with Device.open(folder) as opened:
        unchecked(folder, "UPDATE examples SET label = x'ff' WHERE id = 1")
        Device.repair(folder)
        with pytest.raises(DeviceError, match="repaired or erased meanwhile; open the device"):
            opened.remember(["late"], ["1"])
    with Device.open(folder) as device:
        assert "late" not in {row.example for row in device.examples()}


def test_repair_rejects_other_and_unfinished_folders(tmp_path, folder):
    with pytest.raises(DeviceError, match="not a device folder"):
        Device.repair(tmp_path)
    Store.open(tmp_path / STORE, create=True).close()
    report = Device.repair(tmp_path)
    assert not report.whole and "never finished" in report.problems[0]


def test_files_are_readable_by_their_user_only(tmp_path, releases, folder):
    before = os.umask(0)
    try:
        (tmp_path / "empty").mkdir(mode=0o777)
        for name, mask in (("open", 0), ("empty", 0), ("closed", 0o777)):
            os.umask(mask)
            with Device.create(tmp_path / name, releases["old"]) as device:
                device.replace(releases["mid"], Budget(0))
                modes_of = {file: modes(file) for file in (tmp_path / name).rglob("*")}
            assert modes(tmp_path / name) == modes_of.pop(tmp_path / name / "bundles") == 0o700
            assert {file.name for file in modes_of} >= {STORE, f"{STORE}-wal", f"{STORE}-shm"}
            assert set(modes_of.values()) == {0o600}
    finally:
        os.umask(before)
    (folder / STORE).chmod(0o644)
    report = Device.repair(folder)
    assert f"{STORE}: other users may read it" in report.problems
    assert modes(folder / STORE) == 0o600 and Device.examine(folder).whole


def modes(file):
    return stat.S_IMODE(file.stat().st_mode)
