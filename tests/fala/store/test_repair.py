"""Damaged device folders: their health reports, and what a repair restores."""

import contextlib
import os
import shutil
import sqlite3
import stat
from contextlib import closing

import numpy as np
import pytest

import bridged
from bridged import PROBES, TEXTS
from devices import same, sql, state
from fala.bundle.reading import Bundle
from fala.device import Device
from fala.errors import BundleError, DeviceError
from fala.personal.budget import Budget
from fala.slots.health import REBUILT, STORE
from fala.store.encryption import PLAIN
from fala.store.rescue import rescue
from fala.store.store import Store


@pytest.fixture(scope="module")
def replaced(tmp_path_factory, learned, releases):
    """A folder with two slots, and the state of each."""
    folder = shutil.copytree(learned, tmp_path_factory.mktemp("replaced") / "device")
    with Device.open(folder) as device:
        before = state(device)
        device.replace(releases["mid"], Budget(0))
        device.confirm()  # on trial the device would fall back by itself
        return folder, before, state(device)


@pytest.fixture
def folder(tmp_path, replaced):
    return shutil.copytree(replaced[0], tmp_path / "device")


def execute_unchecked(folder, *statements):
    """Change a store in a way that it does not allow."""
    db = sqlite3.connect(folder / STORE)
    db.execute("PRAGMA foreign_keys = OFF")
    for statement in statements:
        db.execute(statement)
    db.commit()
    db.close()


def file_of(folder, release):
    return folder / "bundles" / f"{Bundle.open(release).digest}.fala"


@pytest.mark.parametrize("name", [STORE, f"{STORE}-journal"])
def test_a_pipe_instead_of_a_file_is_rejected(folder, name):
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    for call in (Device.open, Device.examine, Device.repair):
        with pytest.raises(DeviceError, match=f"{name}: not a regular file"):
            call(folder)


def test_a_repair_does_not_change_a_whole_folder(folder, replaced):
    report = Device.examine(folder)
    assert report.whole and not report.problems and not report.actions
    assert (report.slots, report.examples, report.labelled) == (
        {"a": "whole", "b": "whole"}, 90, 90,
    )  # fmt: skip
    assert set(report.bundles.values()) == {"whole"} and len(report.bundles) == 2
    before = (folder / STORE).read_bytes()
    assert Device.repair(folder) == report
    assert (folder / STORE).read_bytes() == before
    with Device.open(folder) as device:
        assert same(state(device), replaced[2])


@pytest.mark.parametrize("how", ["gone", "cut", "another"])
def test_a_lost_release_leaves_the_previous_one_usable(folder, replaced, releases, how):
    file = file_of(folder, releases["mid"])
    if how == "gone":
        file.unlink()
    else:
        data = releases["new"].read_bytes() if how == "another" else file.read_bytes()[:-100]
        file.write_bytes(data)
    with pytest.raises((BundleError, DeviceError), match=r"fala-device doctor .*--repair"):
        Device.open(folder)
    report = Device.examine(folder)
    assert (report.whole, report.answers, report.slots["a"]) == (False, "a", "whole")
    assert "whole" not in {report.slots["b"], *report.bundles.values()} - {"whole"}
    with pytest.raises((BundleError, DeviceError)):
        Device.open(folder)  # examine has changed nothing
    report = Device.repair(folder)
    assert report.whole and not report.fit
    with Device.open(folder) as device:
        assert same(state(device), replaced[1])
        assert not device.can_roll_back and len(list(device.examples())) == 90
        device.replace(releases["mid"], Budget(0))
    assert Device.examine(folder).whole


@pytest.mark.parametrize(
    "column", ["weight = zeroblob(length(weight))", "bias = x'0000803f'", "model = 'another'"]
)
def test_a_changed_personal_model_is_rejected(folder, replaced, column):
    execute_unchecked(folder, f"UPDATE slots SET {column} WHERE name = 'b'")
    with pytest.raises(DeviceError, match=r"slot b is damaged.*digest differs.*doctor"):
        Device.open(folder)
    report = Device.repair(folder)
    assert "digest differs" in report.slots["b"] and report.answers == "a"
    with Device.open(folder) as device:
        assert same(state(device), replaced[1])


def test_damaged_slots_are_fitted_again(folder, replaced):
    execute_unchecked(folder, "UPDATE slots SET weight = x'00'")
    report = Device.repair(folder)
    assert report.whole and report.fit and report.answers == "b"
    with Device.open(folder) as device:
        # The embeddings and labels are kept; only the old logits are lost.
        assert np.abs(device.predict_proba(PROBES) - replaced[2][0]).max() < 0.05
        assert not device.model.is_vendor and not device.can_roll_back


def test_a_repair_without_a_release_needs_a_bundle(folder, releases):
    for file in (folder / "bundles").iterdir():
        file.write_bytes(b"no bundle")
    report = Device.repair(folder)
    assert not report.whole and report.answers is None and report.examples == 90
    assert any("--bundle" in action for action in report.actions)
    report = Device.repair(folder, releases["old"])
    assert report.whole and report.fit
    with Device.open(folder) as device:
        assert len(list(device.examples())) == 90 and device.backbone == "old"
        assert not device.model.is_vendor
    assert Device.examine(folder).whole


def test_unreadable_rows_affect_no_other_row(folder, replaced):
    ids = [row for (row,) in sql(folder, "SELECT id FROM examples ORDER BY id")]
    execute_unchecked(
        folder,
        f"UPDATE examples SET label = x'ff' WHERE id = {ids[3]}",
        f"UPDATE examples SET document = 999 WHERE id = {ids[4]}",
        f"UPDATE examples SET added = 'yesterday' WHERE id = {ids[5]}",
        "UPDATE embeddings SET vector = x'0102' WHERE text = 9",
        "UPDATE logits SET value = 'none' WHERE example = 11",
    )
    with (
        Device.open(folder) as device,
        pytest.raises(DeviceError, match=r"examples are damaged.*doctor"),
    ):
        device.examples()
    report = Device.repair(folder)
    assert (report.examples, report.labelled, report.lost) == (90, 88, 1)
    # What is damaged is kept aside, not deleted.
    assert report.aside is not None and (folder / report.aside).is_file()
    with Device.open(folder) as device:
        # The text of the lost row is kept, too, without its label.
        rows = {row.id: row for row in device.examples()}
        assert {*rows} == {*ids, ids[-1] + 1} - {ids[4]} and rows[ids[-1] + 1].label is None
        assert {row.example for row in rows.values()} == {*TEXTS}
        assert same(state(device), replaced[2])
        device.rollback()
        device.fit()
    assert Device.examine(folder).whole


def test_another_key_deletes_the_damaged_store(folder):
    """It has texts that nobody could read without the new key otherwise."""
    execute_unchecked(folder, "UPDATE examples SET label = x'ff' WHERE id = 1")
    aside = folder / Device.repair(folder).aside
    with Device.open(folder) as device:
        device.rotate_key(lambda: bytes(range(32)))
    assert not aside.exists()


def test_forgetting_deletes_the_damaged_store(folder):
    """It has the forgotten text, too; what was readable is in the new store."""
    execute_unchecked(folder, "UPDATE examples SET label = x'ff' WHERE id = 1")
    report = Device.repair(folder)
    aside = folder / report.aside
    with Device.open(folder) as device:
        device.remember(["later"], ["1"])
        first, *others = device.examples()
        assert first.example.encode() in aside.read_bytes()
        assert (
            device.forget([10**6]).count == 0 and aside.is_file()
        )  # unknown: nothing is forgotten
        assert device.forget([first]).count == 1 and not aside.exists()
        assert {*device.examples()} == {*others}
        for file in folder.rglob("*"):
            assert not file.is_file() or first.example.encode() not in file.read_bytes()


def test_missing_settings_are_written_again(folder):
    execute_unchecked(folder, "DELETE FROM device")
    with pytest.raises(DeviceError, match=r"damaged.*doctor"):
        Device.open(folder)
    assert Device.repair(folder).whole
    with Device.open(folder) as device:
        assert len(list(device.examples())) == len(TEXTS)


def has_dbstat():
    with closing(sqlite3.connect(":memory:")) as db, contextlib.suppress(sqlite3.Error):
        db.execute("SELECT * FROM dbstat")
        return True
    return False


def pages_of(folder, name):
    """The pages of a table's, or index's, rows."""
    query = "SELECT pageno FROM dbstat WHERE name = ? AND pagetype = 'leaf' ORDER BY path"
    return [page for (page,) in sql(folder, query, name)]


def with_page(data, page, content):
    at = (page - 1) * 4096
    return data[:at] + content + data[at + 4096 :]


@pytest.mark.parametrize("damage", ["first page", "schema", "cut"])
def test_an_unreadable_store_is_rebuilt_without_examples(folder, damage):
    file = folder / STORE
    data = file.read_bytes()
    if damage == "first page":
        data = bytes(4096) + data[4096:]
    elif damage == "schema":
        data = data.replace(b"CREATE TABLE", b"CREATE\xff\xfeTABL")
    else:
        data = data[:100]
    file.write_bytes(data)
    assert not Device.examine(folder).whole
    report = Device.repair(folder)
    assert report.whole and report.fit and report.examples == 0
    assert (folder / report.aside).read_bytes() == data
    with Device.open(folder) as device:
        device.learn(TEXTS[:3], ["0", "1", "0"])
    assert Device.examine(folder).whole


@pytest.mark.parametrize("damage", ["name", "header", "cut", "shorter"])
def test_a_damaged_header_is_repaired(folder, replaced, damage):
    texts = {row.example: row.label for row in list(examples_of(folder))}
    file = folder / STORE
    data = file.read_bytes()
    zeros = {"name": 16, "header": 100}.get(damage, 0)
    end = len(data) - {"cut": 5000, "shorter": 4096}.get(damage, 0)
    file.write_bytes(bytes(zeros) + data[zeros:end])
    before = sorted(folder.iterdir())
    assert not Device.examine(folder).whole and sorted(folder.iterdir()) == before
    assert Device.repair(folder).whole
    assert {row.example for row in examples_of(folder)} == texts.keys()
    if damage in ("name", "header"):
        with Device.open(folder) as device:
            assert same(state(device), replaced[2])


def examples_of(folder):
    with Device.open(folder) as device:
        yield from device.examples()


@pytest.mark.skipif(not has_dbstat(), reason="this SQLite does not tell where tables lie")
@pytest.mark.parametrize("table", ["examples", "texts"])
@pytest.mark.parametrize("how", ["empty", "an earlier page"])
def test_damaged_pages_lose_no_example(tmp_path, how, table):
    """Of many pages: rows are read by their ids, from both ends, and from the index."""
    store = Store.open(tmp_path / STORE, create=True)
    long = [f"{number} " * 300 for number in range(1200)]
    with store.transaction():
        ids = store.examples.remember(long, ["1"] * len(long))
    store.close()
    data = (tmp_path / STORE).read_bytes()
    leaves = pages_of(tmp_path, table)
    first = data[(leaves[0] - 1) * 4096 : leaves[0] * 4096]  # whose keys are smaller
    for page in leaves[1::3]:
        data = with_page(data, page, bytes(4096) if how == "empty" else first)
    (tmp_path / STORE).write_bytes(data)
    with closing(sqlite3.connect(tmp_path / STORE)) as source:
        rescued = rescue(tmp_path / STORE, source, PLAIN)
    rows = rescued.store.examples.all()
    assert [(row.id, row.example) for row in rows] == list(zip(ids, long, strict=True))
    lost = sum(row.label is None for row in rows)
    assert len(leaves) > 5 and lost < 0.4 * len(rows) and (lost > 0) == (table == "examples")
    assert rescued.problems and not rescued.lost


def test_a_killed_repair_is_completed_by_the_next(folder, replaced, monkeypatch):
    execute_unchecked(folder, "UPDATE examples SET label = x'ff' WHERE id = 1")

    def interrupt(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("fala.slots.repair._finish", lambda *a: interrupt() if a[1:] else None)
        with pytest.raises(KeyboardInterrupt):
            Device.repair(folder)
    assert (folder / REBUILT).exists() and not (folder / STORE).exists()
    with pytest.raises(DeviceError, match="a repair was interrupted"):
        Device.open(folder)
    with pytest.raises(DeviceError, match="not empty"):
        Device.create(folder, bridged.__file__ and next((folder / "bundles").iterdir()))
    assert not Device.examine(folder).whole
    assert Device.repair(folder).whole
    with Device.open(folder) as device:
        assert same(state(device), replaced[2]) and len(list(device.examples())) == 90
    assert not (folder / REBUILT).exists()


def test_a_device_opened_before_a_repair_writes_nothing(folder):
    with Device.open(folder) as opened:
        execute_unchecked(folder, "UPDATE examples SET label = x'ff' WHERE id = 1")
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
    execute_unchecked(folder, "PRAGMA user_version = 99")
    for call in (Device.examine, Device.repair):
        with pytest.raises(DeviceError, match="newer fala"):
            call(folder)


def test_files_are_readable_by_their_user_only(tmp_path, releases, folder):
    before = os.umask(0)
    try:
        (tmp_path / "empty").mkdir(mode=0o777)
        for name, mask in (("open", 0), ("empty", 0), ("closed", 0o777)):
            os.umask(mask)
            with Device.create(tmp_path / name, releases["old"]) as device:
                device.learn(TEXTS[:3], ["0", "1", "0"])
                device.replace(releases["mid"], Budget(0))
                modes_of = {file: modes(file) for file in (tmp_path / name).rglob("*")}
            assert modes(tmp_path / name) == 0o700
            assert modes_of.pop(tmp_path / name / "bundles") == 0o700
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
