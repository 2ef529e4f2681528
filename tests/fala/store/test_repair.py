"""Damaged folders of devices: what is said of them, and what a repair brings back."""

import shutil
import sqlite3
import stat

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
from fala.slots.pages import rows_of
from fala.store.store import Store


@pytest.fixture(scope="module")
def replaced(tmp_path_factory, learned, releases):
    """A folder with two slots, and what each of them answers."""
    folder = shutil.copytree(learned, tmp_path_factory.mktemp("replaced") / "device")
    with Device.open(folder) as device:
        before = state(device)
        device.replace(releases["mid"], Budget(0))
        device.confirm()  # on trial the device would fall back by itself
        return folder, before, state(device)


@pytest.fixture
def folder(tmp_path, replaced):
    return shutil.copytree(replaced[0], tmp_path / "device")


def loose(folder, *statements):
    """Change a store in a way that it does not allow."""
    db = sqlite3.connect(folder / STORE)
    db.execute("PRAGMA foreign_keys = OFF")
    for statement in statements:
        db.execute(statement)
    db.commit()
    db.close()


def file_of(folder, release):
    return folder / "bundles" / f"{Bundle.open(release).digest}.fala"


def test_what_is_whole_stays_as_it_is(folder, replaced):
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
def test_a_lost_release_does_not_lock_the_user_out_of_the_earlier_one(
    folder, replaced, releases, how
):
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
        Device.open(folder)  # looking has changed nothing
    report = Device.repair(folder)
    assert report.whole and not report.fit and report.aside is None
    with Device.open(folder) as device:
        assert same(state(device), replaced[1])
        assert not device.can_roll_back and len(list(device.examples())) == 90
        device.replace(releases["mid"], Budget(0))
    assert Device.examine(folder).whole


@pytest.mark.parametrize(
    "column", ["weight = zeroblob(length(weight))", "bias = x'0000803f'", "model = 'another'"]
)
def test_a_personal_model_is_the_one_that_was_kept(folder, replaced, column):
    loose(folder, f"UPDATE slots SET {column} WHERE name = 'b'")
    with pytest.raises(DeviceError, match=r"slot b is damaged.*digest differs.*doctor"):
        Device.open(folder)
    report = Device.repair(folder)
    assert "digest differs" in report.slots["b"] and report.answers == "a"
    with Device.open(folder) as device:
        assert same(state(device), replaced[1])


def test_a_slot_without_another_is_fitted_again(folder, replaced):
    loose(folder, "UPDATE slots SET weight = x'00'")
    report = Device.repair(folder)
    assert report.whole and report.fit and report.answers == "b"
    with Device.open(folder) as device:
        # The embeddings and labels are there, only the old logits' say is not.
        assert np.abs(device.predict(PROBES) - replaced[2][0]).max() < 0.05
        assert not device.model.is_vendor and not device.can_roll_back


def test_without_a_whole_release_one_is_asked_for(folder, releases):
    for file in (folder / "bundles").iterdir():
        file.write_bytes(b"no bundle")
    report = Device.repair(folder)
    assert not report.whole and report.answers is None and report.examples == 90
    assert any("--bundle" in action for action in report.actions)
    report = Device.repair(folder, releases["old"])
    assert report.whole and report.fit
    with Device.open(folder) as device:
        assert len(list(device.examples())) == 90 and device.name == "old"
        assert not device.model.is_vendor
    assert Device.examine(folder).whole


def test_rows_that_cannot_be_read_cost_no_other_row(folder, replaced):
    ids = [row for (row,) in sql(folder, "SELECT id FROM examples ORDER BY id")]
    loose(
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
    assert (report.examples, report.labelled, report.lost) == (90, 87, 1)
    # What is damaged is kept aside, not deleted.
    assert report.aside is not None and (folder / report.aside).is_file()
    with Device.open(folder) as device:
        # The text of the lost row is there, too, without what it was said to be.
        rows = {row.id: row for row in device.examples()}
        assert {*rows} == {*ids, ids[-1] + 1} - {ids[4]} and rows[ids[-1] + 1].label is None
        assert {row.example for row in rows.values()} == {*TEXTS}
        assert same(state(device), replaced[2])
        device.rollback()
        device.fit()
    assert Device.examine(folder).whole


@pytest.mark.parametrize("damage", ["first page", "schema", "cut", "a page over another"])
def test_a_damaged_file_gives_what_can_be_read(folder, replaced, damage):
    file = folder / STORE
    texts = {row.example: row.label for row in list(examples_of(folder))}
    data = file.read_bytes()
    pages = {
        page for (page,) in sql(folder, "SELECT pageno FROM dbstat WHERE name = 'logits'")
    } if has_dbstat() else {len(data) // 4096}  # fmt: skip
    if damage == "first page":
        data = bytes(4096) + data[4096:]
    elif damage == "schema":
        data = data.replace(b"CREATE TABLE", b"CREATE\xff\xfeTABL")
    elif damage == "cut":
        data = data[: (max(pages) - 1) * 4096 + 50]
    else:
        at = (min(pages) - 1) * 4096
        data = data[:at] + data[4096:8192] + data[at + 4096 :]
    file.write_bytes(data)
    report = Device.examine(folder)
    assert not report.whole
    report = Device.repair(folder)
    assert report.whole and (folder / report.aside).read_bytes() == data
    kept = {row.example: row.label for row in list(examples_of(folder))}
    assert kept.items() <= texts.items()
    if damage in ("first page", "schema"):
        # All of it is there, as it was: slots, settings, embeddings and logits, too.
        assert kept == texts and (report.answers, report.fit) == ("b", False)
        with Device.open(folder) as device:
            assert same(state(device), replaced[2])
            device.rollback()
            assert same(state(device), replaced[1])
            device.fit()
    assert len(kept) >= 60 and Device.examine(folder).whole


def has_dbstat():
    db = sqlite3.connect(":memory:")
    try:
        db.execute("SELECT * FROM dbstat")
    except sqlite3.Error:
        return False
    finally:
        db.close()
    return True


def examples_of(folder):
    with Device.open(folder) as device:
        yield from device.examples()


def test_rows_are_read_from_the_log_and_long_ones_from_many_pages(tmp_path):
    store = Store(tmp_path / STORE, create=True)
    long = "a long text " * 3000
    for given in (["short", long], ["another"]):
        with store.transaction():
            store.remember(given, ["1"] * len(given))
    data, log = ((tmp_path / f"{STORE}{end}").read_bytes() for end in ("", "-wal"))
    rows = {columns for _, columns in rows_of(data, log)}
    assert {(None, "short", None), (None, long, None), (None, "another", None)} <= rows
    assert len([row for row in rows if len(row) == 7]) == 3
    # A transaction that was not committed is not there.
    assert not {columns for _, columns in rows_of(data, log[: len(log) // 2])} >= rows
    store.close()


def test_a_repair_that_was_killed_is_finished(folder, replaced, monkeypatch):
    loose(folder, "UPDATE examples SET label = x'ff' WHERE id = 1")

    def killed(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("fala.slots.repair._finish", lambda *given: killed() if given[1:] else None)
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


def test_whoever_had_the_damaged_store_open_writes_to_it_no_more(folder):
    with Device.open(folder) as other:
        loose(folder, "UPDATE examples SET label = x'ff' WHERE id = 1")
        Device.repair(folder)
        with pytest.raises(DeviceError, match="repaired or erased meanwhile; open the device"):
            other.remember(["late"], ["1"])
    with Device.open(folder) as device:
        assert "late" not in {row.example for row in device.examples()}


def test_what_is_no_device_and_what_was_never_finished(tmp_path, folder):
    with pytest.raises(DeviceError, match="not a device folder"):
        Device.repair(tmp_path)
    Store(tmp_path / STORE, create=True).close()
    report = Device.repair(tmp_path)
    assert not report.whole and "never finished" in report.problems[0]
    loose(folder, "PRAGMA user_version = 99")
    for call in (Device.examine, Device.repair):
        with pytest.raises(DeviceError, match="newer fala"):
            call(folder)


def test_files_are_for_their_user_alone(tmp_path, releases, folder):
    import os

    before = os.umask(0)
    try:
        (tmp_path / "empty").mkdir(mode=0o777)
        for name, mask in (("open", 0), ("empty", 0), ("closed", 0o777)):
            os.umask(mask)
            with Device.create(tmp_path / name, releases["old"]) as device:
                device.learn(TEXTS[:3], ["0", "1", "0"])
                device.replace(releases["mid"], Budget(0))
                found = {file: modes(file) for file in (tmp_path / name).rglob("*")}
            assert modes(tmp_path / name) == 0o700
            assert found.pop(tmp_path / name / "bundles") == 0o700
            assert {file.name for file in found} >= {STORE, f"{STORE}-wal", f"{STORE}-shm"}
            assert set(found.values()) == {0o600}
    finally:
        os.umask(before)
    (folder / STORE).chmod(0o644)
    report = Device.repair(folder)
    assert f"{STORE}: other users may read it" in report.problems
    assert modes(folder / STORE) == 0o600 and Device.examine(folder).whole


def modes(file):
    return stat.S_IMODE(file.stat().st_mode)
