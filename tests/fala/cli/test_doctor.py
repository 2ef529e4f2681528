"""The command ``doctor`` checks and repairs a device's folder."""

import json

import pytest

from device_command import failed, run, works
from devices import sql
from fala.device import Device


def test_doctor_examines_and_repairs(path):
    result = works("doctor", path)
    assert result.output.splitlines()[0] == "examples: 90, 90 with a label"
    assert result.output.endswith("\nwhole\n") and "\nactive: old\n" in result.output
    sql(path, "UPDATE examples SET label = x'ff' WHERE id = 1")
    result = run("doctor", path)
    assert result.exit_code == 1 and "to do: write store.sqlite3 anew" in result.output
    result = run("doctor", path, "--json")
    report = json.loads(result.output)
    assert (result.exit_code, report["whole"], report["labelled"]) == (1, False, 89)
    result = works("doctor", path, "--repair")
    assert "done: write store.sqlite3 anew" in result.output
    assert "kept aside: damaged-" in result.output
    works("doctor", path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "not a device folder"), ([".", "--bundle", "x.fala"], "goes with --repair"),
        ([".", "--trust", "x.pub"], "--trust goes with --repair"),
        ([".", "--unsigned"], "--unsigned goes with --repair"),
        ([""], "not a device folder"),
    ],
)  # fmt: skip
def test_mistakes_end_in_one_line(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert message in failed("doctor", *arguments)


def test_it_asks_who_signs_releases_where_the_store_does_not_say(path, tmp_path):
    (tmp_path / "key.pub").write_bytes(bytes(32))
    sql(path, "UPDATE device SET trust = NULL")
    assert "to do: it cannot be read which key" in run("doctor", path).output
    assert "--trust FILE" in failed("doctor", path, "--repair")
    works("doctor", path, "--repair", "--unsigned")
    sql(path, "UPDATE device SET trust = NULL")
    works("doctor", path, "--repair", "--trust", tmp_path / "key.pub")
    with Device.open(path) as device:
        assert device._folder.store.settings.admission().key == bytes(32)


def test_output_contains_no_terminal_escapes(path):
    sql(path, "UPDATE slots SET bundle = ?", "\x1b[31mred")
    result = run("doctor", path)
    assert result.exit_code == 1 and "\x1b" not in result.output and "?" not in result.output
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
