"""The command ``fala`` lists the other commands without importing them, and runs them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest
from click.shell_completion import BashComplete

import fala_command
import warm
from fala.cli.commands import Command
from fala_sim.playground.releases import BUILT_IN
from program import Program

PROGRAM = Program(fala_command.command, "fala")


def completions(*words):
    *before, last = words
    shell = BashComplete(fala_command.command, {}, "fala", "_FALA_COMPLETE")
    return [item.value for item in shell.get_completions(before, last)]


def test_the_list_of_commands_imports_none_of_them():
    code = """
import sys
import fala_command
try:
    fala_command.command(["-h"])
except SystemExit:
    print(*({"fala", "fala_export", "fala_sim", "numpy"} & set(sys.modules)))
"""
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *printed, imported = child.stdout.splitlines()
    assert imported == ""
    listed = [line.split()[0] for line in printed if line.startswith("  ")]
    assert {*(part.name for part in fala_command.PARTS), "completion"} <= set(listed)


@pytest.mark.parametrize("part", fala_command.PARTS, ids=lambda part: part.name)
def test_a_command_and_the_list_have_the_same_description(part):
    assert part.load().help.partition("\n")[0] == part.short_help
    shown = PROGRAM.works(part.name, "-h")
    assert shown.stderr == ""
    assert shown.stdout.startswith(f"Usage: fala {part.name} ")
    PROGRAM.works(part.name, "--version")


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("replace", "--old", "nothing", "--new", "bert"), 1, "fala: 'nothing' is neither"),
        (("device", "doctor", "nowhere"), 1, "nowhere: not a device folder"),
        (("export", "inspect", "nowhere"), 1, "fala: nowhere: no such file"),
        (("replace", "--budget", "-1"), 2, "--budget"),
        # A mistyped name gets a suggestion, where one is near.
        (("sim", "table", "99"), 2, "No such command '99'.\n"),
        (("replcae",), 2, "No such command 'replcae'. Did you mean 'replace'?"),
        (("device", "docter"), 2, "Did you mean 'doctor'?"),
        (("replace", "--old", "glove", "--new", "bertt"), 1, "Did you mean 'bert'?"),
        (("sim", "data", "get", "multipcio"), 1, "Did you mean 'multipico'?"),
        (("device", "update", "a", "b", "--root", "c", "--accept", "alwys"), 2, "mean 'always'?"),
    ],
)
def test_mistakes_end_in_one_line(arguments, status, message):
    if arguments[:2] == ("sim", "data"):
        pytest.importorskip("pooch")  # without its extra the message is another
    assert message in PROGRAM.failed(*arguments, status=status)


def test_completions_are_commands_and_names():
    assert completions("s") == ["sim"]
    assert "doctor" in completions("device", "")
    assert completions("replace", "--old", "")[:2] == [*BUILT_IN]
    assert completions("sim", "table", "head") == ["headline"]
    assert completions("sim", "all", "--methods", "old,lo") == ["old,lora", "old,logistic"]
    assert "int8" in completions("export", "backbone", "--quantize", "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_covers_all_programs(shell):
    printed = PROGRAM.works("completion", shell).stdout
    for program in ("fala", "fala-replace", "fala-device", "fala-export", "fala-sim"):
        assert f"_{program.replace('-', '_').upper()}_COMPLETE" in printed


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_ctrl_c_while_a_program_is_imported_ends_in_one_line():
    process = subprocess.Popen(
        [sys.executable, "-c", "import fala_command; fala_command.export()", "--help"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    maps = Path(f"/proc/{process.pid}/maps")
    warm.until(lambda: "numpy" in maps.read_text(), process)
    process.send_signal(signal.SIGINT)
    printed, errors = process.communicate(timeout=60)
    assert (process.returncode, printed) == (130, "")
    assert errors.endswith(": interrupted\n") and errors.count("\n") == 1


def test_ctrl_c_while_click_is_imported_prints_no_traceback(tmp_path):
    (tmp_path / "click.py").write_text("raise KeyboardInterrupt")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import fala_command"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize("program", [part.program for part in fala_command.PARTS if part.program])
def test_a_program_that_is_not_installed_is_reported_in_one_line(program, monkeypatch, capsys):
    (part,) = (part for part in fala_command.PARTS if part.program == program)
    monkeypatch.setattr(part, "where", "fala.no_such_module:command")
    with pytest.raises(SystemExit) as ended:
        getattr(fala_command, program.partition("-")[2])()
    errors = capsys.readouterr().err
    assert ended.value.code == 1 and errors.count("\n") == 1
    assert errors.startswith(f"{program}: '{program}' is not installed: ")


@pytest.mark.parametrize(
    ("start", "encoding"), [("main()", "cp1252"), ("device()", "ascii"), ("device()", "utf-8")]
)
def test_what_the_terminal_cannot_show_is_replaced(tmp_path, start, encoding):
    folder = "Bo\u017cena \u653b\u51fb"
    (tmp_path / folder).mkdir()
    code = f"import fala_command; fala_command.{start}"
    words = ["device"] * (start == "main()") + ["releases", folder]
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, cwd=tmp_path,
        env={**os.environ, "PYTHONIOENCODING": encoding},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    shown = folder.encode("utf-8" if encoding == "ascii" else encoding, "replace")
    assert done.stdout.decode("latin-1").endswith(": no release\n") and shown in done.stdout


def test_a_ctrl_c_that_python_drops_in_a_callback_ends_the_command():
    class Dropping:
        def __del__(self):
            raise KeyboardInterrupt

    @click.command(cls=Command)
    def slow():
        Dropping()
        for _ in range(1000):
            time.sleep(0.01)

    result = Program(slow, "fala-slow").run()
    assert (result.exit_code, result.stderr) == (130, "fala-slow: interrupted\n")
