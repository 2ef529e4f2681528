import subprocess
import sys

import pytest

from base_install import CLIENTS, left_out

GUARD = f"""
import sys

class Guard:
    def find_spec(self, name, path=None, target=None):
        if name in {CLIENTS | left_out()!r}:
            raise ImportError(f"{{name}} is not in a base install")

sys.meta_path.insert(0, Guard())
"""


def run(code, *arguments):
    done = subprocess.run(
        [sys.executable, "-c", GUARD + code, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_guard_guards():
    with pytest.raises(AssertionError, match="not in a base install"):
        run("import torch.nn")
    with pytest.raises(AssertionError, match="not in a base install"):
        run("import requests")


def test_import_fala_loads_no_runtime():
    """Opening the door is as quick as NumPy; a backbone brings its own when it loads."""
    loaded = run("import fala; print(*sorted({name.partition('.')[0] for name in sys.modules}))")
    assert not {"onnxruntime", "tokenizers", "click"} & set(loaded.split())


def test_a_device_works_in_a_base_install(tmp_path):
    """From the built-in backbones to predictions by the new one."""
    code = """
from pathlib import Path
import fala
from fala.vendor import built_in

folder = Path(sys.argv[1])
texts = [f"{word} number {i}" for i in range(12) for word in ("a good film", "an awful film")]
labels = [0, 1] * 12

def release(name):
    bundle = fala.Bundle.open(built_in()[name])
    head = fala.fit_head(bundle.backbone(), texts, labels)
    fala.write_release(folder / name, bundle, head, {})
    return folder / name

with fala.Device.create(folder / "device", release("glove")) as device:
    device.learn(texts, labels)
    report = device.replace(release("bert"), fala.Budget(10))
    assert report.forward_passes == 10
    assert device.predict(texts).argmax(axis=1).tolist() == labels
with fala.Device.open(folder / "device") as device:
    device.rollback()
    assert device.name == "glove"
    print("done")
"""
    assert run(code, tmp_path) == "done\n"


def test_the_command_works_in_a_base_install():
    code = "from fala.demo.command import main; main()"
    printed = run(code, "--old", "glove", "--new", "bert", "--users", "1", "--budget", "20")
    assert "synthetic" in printed
