import ast
import subprocess
import sys

import pytest

import fala
from checkout import ROOT

#: What a base install does not have, or what the device must not use.
FORBIDDEN = (
    "torch", "transformers", "optimum", "onnx", "sklearn", "fala_export", "fala_sim", "requests",
    "httpx", "urllib3", "aiohttp", "huggingface_hub", "sentence_transformers",
)  # fmt: skip

#: Of the standard library: ways to the network.
NETWORK = ("socket", "ssl", "http", "urllib", "ftplib", "smtplib", "xmlrpc", "asyncio")

GUARD = f"""
import sys

class Guard:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {FORBIDDEN!r}:
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


def test_import_fala_loads_no_runtime():
    """Opening the door is as quick as NumPy and SciPy; a backbone brings its own when it loads."""
    loaded = run("import fala; print(*sorted({name.partition('.')[0] for name in sys.modules}))")
    heavy = {*FORBIDDEN, "onnxruntime", "tokenizers", "click"}
    assert not heavy & set(loaded.split())


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


def imports(path):
    """The modules that a file imports, wherever in it, as (module, names or None)."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, None
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            yield node.module, [alias.name for alias in node.names]


def modules(folder):
    found = sorted((ROOT / folder).rglob("*.py"))
    assert found
    return found


@pytest.mark.parametrize("path", modules("sdk"), ids=lambda path: path.name)
def test_the_device_imports_nothing_forbidden(path):
    for module, _ in imports(path):
        assert module.partition(".")[0] not in (*FORBIDDEN, *NETWORK)


@pytest.mark.parametrize("path", modules("device_sim"), ids=lambda path: path.name)
def test_the_laboratory_stays_outside_of_the_device(path):
    """It takes public names; its command ends mistakes as the others do."""
    for module, names in imports(path):
        assert module.partition(".")[0] != "fala_export"
        if module.partition(".")[0] == "fala" and module != "fala.vendor.commands":
            if module.startswith("fala.vendor"):
                continue
            assert module == "fala"
            assert names is None or set(names) <= set(fala.__all__)


@pytest.mark.parametrize("path", modules("export"), ids=lambda path: path.name)
def test_the_exporter_knows_nothing_of_the_laboratory(path):
    assert all(module.partition(".")[0] != "fala_sim" for module, _ in imports(path))
