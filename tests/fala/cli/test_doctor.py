"""The command that looks after a device's folder."""

import json

import pytest

from device_command import failed, run, works
from devices import sql
from fala.device import Device


def test_a_doctor_looks_and_repairs(path):
    done = works("doctor", path)
    assert done.output.splitlines()[0] == "examples: 90, 90 with a label"
    assert done.output.endswith("\nwhole\n") and "slot a (active): whole" in done.output
    sql(path, "UPDATE examples SET label = x'ff' WHERE id = 1")
    done = run("doctor", path)
    assert done.exit_code == 1 and "to do: write store.sqlite3 anew" in done.output
    done = run("doctor", path, "--json")
    said = json.loads(done.output)
    assert (done.exit_code, said["whole"], said["labelled"]) == (1, False, 89)
    done = works("doctor", path, "--repair")
    assert "done: write store.sqlite3 anew" in done.output
    assert "kept aside: damaged-" in done.output
    works("doctor", path)
    with Device.open(path) as device:
        assert len(list(device.examples())) == 90


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "not a device folder"), ([".", "--bundle", "x.fala"], "goes with --repair"),
        ([""], "not a device folder"),
    ],
)  # fmt: skip
def test_mistakes_end_in_one_line(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert message in failed("doctor", *arguments)


def test_a_name_cannot_speak_to_the_terminal(path):
    sql(path, "UPDATE slots SET bundle = ?", "\x1b[31mred")
    (path / "bundles" / "two\nlines\x07.fala").touch()
    done = run("doctor", path)
    assert done.exit_code == 1 and "\x1b" not in done.output and "?" not in done.output
    assert "bundle two lines\\x07.fala: not a bundle" in done.output
    message = failed("doctor", path / "\x1b[31mred")
    assert "\x1b" not in message and "\\x1b[31mred" in message


def test_an_encrypted_device_needs_its_key(tmp_path, path):
    (tmp_path / "key").write_bytes(bytes(32))
    (tmp_path / "short").write_bytes(b"short")
    with Device.open(path) as device:
        device.rotate_key((tmp_path / "key").read_bytes)
    works("doctor", path, "--key-file", tmp_path / "key")
    for arguments in ([], ["--key-file", tmp_path / "short"], ["--key-file", tmp_path / "none"]):
        failed("doctor", path, *arguments)
