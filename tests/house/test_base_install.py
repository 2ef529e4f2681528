import json
import subprocess
import sys

import pytest

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


def test_the_guard_rejects_other_packages():
    with pytest.raises(AssertionError, match="not in a base install"):
        run("import torch.nn")
    with pytest.raises(AssertionError, match="not in a base install"):
        run("import requests")


def test_import_fala_loads_no_runtime():
    """Importing fala is as fast as NumPy; a backbone imports its runtime when it loads."""
    loaded = run("import fala; print(*sys.modules)")
    assert not {"onnxruntime", "tokenizers", "click", "fala.testing"} & set(loaded.split())


def test_a_device_works_in_a_base_install(tmp_path):
    """From the built-in backbones to predictions by the new one."""
    code = """
from pathlib import Path
import fala
import fala_sim
import fala_export

folder = Path(sys.argv[1])
texts = [f"{word} number {i}" for i in range(12) for word in ("a good film", "an awful film")]
labels = [0, 1] * 12

def release(name):
    bundle = fala.Bundle.open(fala_sim.sample_release(name))
    head = fala_export.fit_head(bundle.backbone(), texts, labels)
    fala_export.write_release(folder / name, bundle, head, {})
    return folder / name

with fala.Device.create(folder / "device", release("glove")) as device:
    device.learn(texts, labels)
    report = device.replace(release("bert"), fala.Budget(10))
    assert report.forward_passes == 10
    assert device.predict_proba(texts).argmax(axis=1).tolist() == labels
with fala.Device.open(folder / "device") as device:
    device.rollback()
    assert device.status().release == "glove"
    print("done")
"""
    assert run(code, tmp_path) == "done\n"


def test_the_command_works_in_a_base_install(tmp_path):
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


@pytest.mark.parametrize("program", ["main", "replace", "device", "export", "sim"])
def test_a_command_without_click_ends_in_one_line(program):
    code = f"{guard({'click'})}from fala_command import {program}; {program}()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "fala: its commands need click: pip install click (click is not in a base install)\n"
    )
