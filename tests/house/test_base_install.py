import json
import subprocess
import sys

from base_install import CLIENTS, left_out
from command_lines import data_rows, jsonl
from fala.base.errors import install_hint


def guard(names):
    return f"""
import sys

class Guard:
    def find_spec(self, name, path=None, target=None):
        if name in {names!r}:
            raise ModuleNotFoundError(f"{{name}} is not in a base install", name=name)

sys.meta_path.insert(0, Guard())
"""


GUARD = guard(CLIENTS | left_out())


def run(code, *arguments, before=GUARD):
    done = subprocess.run(
        [sys.executable, "-c", before + code, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_command_works_in_a_base_install(tmp_path):
    """From the built-in backbones to heads, devices and predictions by the new backbone."""
    code = "from fala_command import replace; replace()"
    (tmp_path / "rows.jsonl").write_text(jsonl(data_rows()))
    arguments = ("--old", "glove", "--new", "bert", "--budget", 20)
    printed = run(code, *arguments, "--data", tmp_path / "rows.jsonl")
    assert "mean" in printed and "at most 20 forward passes" in printed


#: Commands that need an extra, and which one.
NEEDY = {
    "demo": "demo",
    "export release recipe.toml": "export",
    "export backbone model --out x.fala": "export",
    "export train model --data rows.jsonl --out x.fala --frozen": "export",
    "export adapter --base b --model m --data rows.jsonl --task t --out x.fala --work w": "export",
    "export key key.pem": "ota",
    "export sign x.fala --key key.pem": "ota",
    "export publish repository x.fala": "ota",
    "export repository begin repository": "ota",
    "sim all": "sim",
    "sim table 1 --run": "sim",
    "sim figure 2": "sim",
    "sim data list": "sim",
    "sim data get mind": "sim",
    "sim models list": "sim",
    "sim models get mpnet": "sim",
    "sim study perplm prompts": "sim",
}


def test_a_missing_extra_ends_in_one_line(tmp_path):
    """The exporter and the laboratory are installed without their dependencies."""
    code = """
import json, os
from click.testing import CliRunner
import fala_command

os.chdir(sys.argv[1])
for line in json.loads(sys.argv[2]):
    done = CliRunner().invoke(fala_command.command, line.split(), prog_name="fala")
    print(json.dumps([line, done.exit_code, done.stdout, done.stderr, repr(done.exception)]))
"""
    missing = CLIENTS | left_out()
    printed = run(code, tmp_path, json.dumps(list(NEEDY)), before=guard(missing))
    for line, status, out, errors, exception in map(json.loads, printed.splitlines()):
        assert exception == "SystemExit(1)", (line, exception)
        assert (status, out, errors.count("\n")) == (1, "", 1), (line, errors)
        assert errors.startswith("fala: ")
        assert install_hint(NEEDY[line]) in errors, (line, errors)


def test_a_command_without_click_ends_in_one_line():
    """All commands are of one module, see ``test_distribution.py``."""
    command = [sys.executable, "-c", guard({"click"}) + "import fala_command"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "fala: its commands need click: pip install click (click is not in a base install)\n"
    )
