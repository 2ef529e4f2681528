"""The store has one version: it is made whole or not at all, and no other is read."""

import multiprocessing
import shutil

import pytest

from bridged import TEXTS
from devices import sql
from fala import Device, DeviceError
from fala.store.schema import TABLES, VERSION
from fala.store.store import Store
from fala.testing import PowerCuts

STORE = "store.sqlite3"


def version_of(folder):
    return sql(folder, "PRAGMA user_version")[0][0]


def tables_of(folder):
    query = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
    return [name for (name,) in sql(folder, query)]


@pytest.mark.parametrize("version", [VERSION + 1, 10, 100])
def test_another_version_is_an_error_that_says_so(path, version):
    sql(path, f"PRAGMA user_version = {version}")
    before = (path / STORE).read_bytes()
    for call in (Device.open, Device.examine, Device.repair):
        with pytest.raises(DeviceError) as raised:
            call(path)
        message = str(raised.value)
        assert f"schema version {version}, and this FaLA reads version {VERSION}" in message
        assert "update FaLA" in message and "Device.export_data" in message
        assert "damaged" not in message
    assert (path / STORE).read_bytes() == before


@pytest.mark.parametrize("version", [-1, 101, 256, 2**31 - 1])
def test_a_version_that_cannot_be_is_damage(path, version):
    sql(path, f"PRAGMA user_version = {version}")
    with pytest.raises(DeviceError, match=rf"damaged: .* impossible version, {version}; .*doctor"):
        Device.open(path)
    assert Device.repair(path).whole
    assert version_of(path) == VERSION
    with Device.open(path) as device:
        assert [row.example for row in device.examples()] == TEXTS


def test_processes_make_a_store_once(tmp_path):
    context = multiprocessing.get_context("fork")
    start = context.Barrier(4)

    def make():
        start.wait()
        Store.open(tmp_path / STORE, create=True).close()

    processes = [context.Process(target=make) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    assert version_of(tmp_path) == VERSION and tables_of(tmp_path) == sorted(TABLES)
    assert sql(tmp_path, "SELECT count(*) FROM device") == [(1,)]


def test_a_killed_creation_makes_all_tables_or_none(tmp_path):
    def create(folder, _):
        Store.open(folder / STORE, create=True).close()

    (tmp_path / "empty").mkdir()
    cuts = PowerCuts(create, tmp_path / "empty", scratch=tmp_path)
    for cut in cuts.at_operations({"sync", "write", "truncate"}, count=4, unsynced="some"):
        if (cut.folder / STORE).exists():
            shutil.copytree(cut.folder, tmp_path / "copy", dirs_exist_ok=True)
            assert (version_of(tmp_path / "copy"), tables_of(tmp_path / "copy")) in (
                (0, []), (VERSION, sorted(TABLES)),
            )  # fmt: skip
            shutil.rmtree(tmp_path / "copy")
        create(cut.folder, None)
        assert (version_of(cut.folder), tables_of(cut.folder)) == (VERSION, sorted(TABLES))
