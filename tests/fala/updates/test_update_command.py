"""The command ``fala-device update`` says what it installed, and how an interrupt leaves it."""

from device_command import done, fails, run, works
from fala import Device
from program import without_progress


def test_an_update_is_installed_once_and_skipped_once_it_is_rolled_back(path, vendor, server):
    command = ("update", path, server.address, "--root", vendor.root)
    updated = works(*command)
    assert without_progress(updated.stderr) == ""
    assert updated.stdout.startswith("old -> model v1 (mid): ")
    assert works(*command).stdout == "model v1 (mid): no newer release\n"
    assert sum(name.startswith("targets/") for name, _ in server.requests) == 1
    assert list((path / "updates").glob("*.part")) == []
    assert done(*command) is None
    works("rollback", path)
    assert works(*command).stdout == "model v1 (mid): skipped, because you rolled it back\n"


def test_ctrl_c_names_the_active_release(path, vendor, server, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(Device, "update", interrupt)
    ended = run("update", path, server.address, "--root", vendor.root)
    line = fails(ended, "interrupted", status=130)
    assert f"{path}: old is active; run the command again to resume\n" in line
