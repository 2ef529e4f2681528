"""Allowed imports between the packages, and between the device's subpackages."""

import ast
import functools
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import fala
import fala_export
from base_install import NETWORK, PACKAGES
from checkout import ROOT, python_files

DEVICE = ROOT / "sdk" / "fala"
EXPORTER = ROOT / "export" / "fala_export"
LABORATORY = ROOT / "device_sim" / "fala_sim"
STUDIES = ROOT / "device_sim" / "studies"

#: Rooms, and modules, that the other packages may import; pyproject.toml forbids the others.
PUBLIC = {
    "backbones", "base", "bundle", "model", "selection", "solver", "testing", "text", "updates",
}  # fmt: skip
#: Rooms of the exporter that the laboratory and the walk import; a study also trains.
VENDOR = {"base", "bundle", "fit", "people", "recipe", "rows"}

#: Packages of extras and network modules, by the modules that may use them.
EXTRAS = {
    "fala.__main__": {"fala_command"},  # not an extra: the command that loads all others
    "fala.bundle.signature": {"cryptography"},
    "fala.store.encryption": {"cryptography"},
    "fala.updates.client": {"filelock", "tuf", "urllib"},
    "fala.updates.fetcher": {"http", "socket", "tuf", "urllib", "urllib3"},
}

#: Modules that only ``Device.update`` imports, when it is called.
LATE = {"fala.updates.client", "fala.updates.fetcher"}

#: Subpackages that only compute, and modules that they may not use: files and clocks.
PURE = ("solver", "selection", "text")
IMPURE = {
    "datetime", "io", "json", "logging", "os", "pathlib", "shutil", "sqlite3", "subprocess",
    "tempfile", "time",
}  # fmt: skip


@dataclass(frozen=True)
class Import:
    """One imported module, or one name out of it."""

    file: Path
    line: int
    module: str  # "fala.bundle" in `from fala.bundle import format`
    name: str | None  # "words" there, None in `import fala.bundle`

    @property
    def package(self):
        return self.module.partition(".")[0]

    def __str__(self):
        statement = f"import {self.module}"
        if self.name is not None:
            statement = f"from {self.module} import {self.name}"
        return f"{self.file}:{self.line}: {statement}"


@functools.cache
def nodes_of(file):
    """Return the nodes of a file's syntax tree that are imports or attributes."""
    kinds = ast.Import, ast.ImportFrom, ast.Attribute
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return [node for node in ast.walk(tree) if isinstance(node, kinds)]


def imports_of(file):
    """Yield every import of a file, also inside functions; a relative import is an error."""
    for node in nodes_of(file):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(file, node.lineno, alias.name, None)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                raise ValueError(f"{file}:{node.lineno}: a relative import")
            for alias in node.names:
                yield Import(file, node.lineno, node.module, alias.name)


def attributes_of(file, module):
    """Yield attributes of a module that a file uses: ``Device`` in ``fala.Device``."""
    for node in nodes_of(file):
        match node:
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner == module:
                yield name


def modules_of(package):
    """Return a package's files by the names of their modules, its folder given."""
    by_module = {}
    for file in python_files(package):
        parts = file.relative_to(package.parent).with_suffix("").parts
        by_module[".".join(part for part in parts if part != "__init__")] = file
    return by_module


def room_of(module):
    """Return the subpackage of a module; "" is the package itself."""
    return module.split(".")[1] if "." in module else ""


MODULES = modules_of(DEVICE)


def files_of(*folders):
    return [file for folder in folders for file in python_files(folder)]


def public(module, name):
    """Whether another package may import the name; None is the module itself."""
    if module == "fala":
        return name in {None, "__version__", *fala.__all__, *PUBLIC}
    if room_of(module) == "cli":
        return module == "fala.cli"
    return room_of(module) in PUBLIC or module == "fala.slots.admit"  # in bundle/admit.py alone


def private_names_in(file):
    """Names of ``fala`` that a file uses and that are not public."""
    imported = [
        str(used)
        for used in imports_of(file)
        if used.package == "fala" and not public(used.module, used.name)
    ]
    by_dot = [f"fala.{name}" for name in attributes_of(file, "fala") if not public("fala", name)]
    return imported + by_dot


def imported_from(file, *packages):
    return [str(used) for used in imports_of(file) if used.package in packages]


def test_the_device_imports_its_base_install_only():
    """No torch, no network, and no other package of this repository."""
    base = {"fala", *PACKAGES, *sys.stdlib_module_names} - NETWORK
    base |= {"_typeshed", "typing_extensions"}  # types alone, of no package
    for module, file in MODULES.items():
        allowed = base | EXTRAS.get(module, set())
        assert [str(used) for used in imports_of(file) if used.package not in allowed] == []


def test_only_device_update_imports_the_network():
    """Without an update, the device imports no network module."""
    assert set(MODULES) >= set(EXTRAS) >= LATE
    users = {
        module
        for module, file in MODULES.items()
        for used in imports_of(file)
        if {used.module, f"{used.module}.{used.name}"} & LATE
    }
    assert users - LATE == {"fala.device"}
    (call,) = [
        node
        for node in ast.walk(ast.parse(MODULES["fala.device"].read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and "fala.updates.client" in ast.unparse(node)
    ]
    assert call.name == "update"


def test_no_module_of_the_exporter_stands_beside_its_rooms():
    assert [file.name for file in EXPORTER.glob("*.py")] == ["__init__.py"]


def test_other_packages_use_only_public_names():
    users = (
        EXPORTER,
        LABORATORY,
        STUDIES,
        *(ROOT / name for name in ("benchmarks", "examples", "recipes")),
    )
    assert [used for file in files_of(*users) for used in private_names_in(file)] == []


def test_the_laboratory_uses_only_public_names_of_the_exporter():
    for file in files_of(LABORATORY, STUDIES):
        rooms = VENDOR | ({"training"} if file.is_relative_to(STUDIES) else set())
        for used in imports_of(file):
            assert (
                used.package != "fala_export"
                or used.module == "fala_export"
                or room_of(used.module) in rooms
            ), str(used)
        assert set(attributes_of(file, "fala_export")) <= set(fala_export.__all__)


def test_no_package_imports_a_study():
    """The laboratory finds studies by their folders, and each study imports no other."""
    for file in files_of(EXPORTER, LABORATORY):
        assert imported_from(file, "studies") == []
    for file in files_of(STUDIES):
        own = f"studies.{file.relative_to(STUDIES).parts[0]}"
        others = [used for used in imports_of(file) if used.package == "studies"]
        assert [str(used) for used in others if not f"{used.module}.".startswith(f"{own}.")] == []


def test_importing_a_package_loads_no_heavy_library():
    """Names load at their first use; heads, bridges, the walk and word vectors need NumPy alone.

    The methods that train load PyTorch when they train, and the commands when they work.

    pytest imports the plugin before a project's ``conftest.py`` has set anything, so that it leaves
    the device alone. The version's metadata take longer to read than the rest of the import.
    """
    code = """
import sys
import pytest_fala, fala_export, fala_sim
print(*sys.modules)
import fala
print(*sys.modules, *vars(fala))
fala_export.fit_head, fala_export.fit_bridge, fala_export.load_rows, fala_sim.sample_release
fala_export.write_head, fala_export.write_words
import fala_sim.playground.command, fala_export.release.pipeline
print(*sys.modules)
import fala_sim.methods.full, fala_sim.methods.adapter, fala_sim.methods.lora
from click.testing import CliRunner
from fala_export.cli import main
assert CliRunner().invoke(main, ["--help"]).exit_code == 0
print(*sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    others, device, used, works = (set(line.split()) for line in lines)
    heavy = {"torch", "transformers", "pandas", "scipy", "sklearn", "onnx", "onnxruntime"}
    assert not (heavy | {"fala", "numpy"}) & others
    assert private_names_in(DEVICE.parent / "pytest_fala.py") == []
    assert not (heavy | {"tokenizers", "click", "fala.testing", "__version__"}) & device
    assert not heavy & used
    assert not {"torch", "transformers", "peft"} & works


def test_imports_follow_the_contracts():
    """``[tool.importlinter]`` in pyproject.toml has the layers, and rejects cycles."""
    done = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as lint; lint()",
         "--no-cache"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


def test_rooms_that_compute_use_no_files_and_no_clock():
    for file in files_of(*(DEVICE / room for room in PURE)):
        assert imported_from(file, *IMPURE) == []


def test_imports_are_found_in_functions_types_and_attributes(tmp_path):
    """Imports in functions and for types, and names used as attributes."""
    file = tmp_path / "hiding.py"
    file.write_text(
        "from typing import TYPE_CHECKING\n"
        "import fala\n"
        "if TYPE_CHECKING:\n    from fala.store import store\n"
        "def run():\n    import fala.slots.folder\n    return fala.personal, fala.Device\n"
    )
    assert private_names_in(file) == [
        f"{file}:4: from fala.store import store",
        f"{file}:6: import fala.slots.folder",
        "fala.personal",
    ]


def test_the_device_names_no_package_above_it():
    """Messages and docstrings name a command; an example may need a release."""
    assert not [
        f"{file.name}: {line.strip()}"
        for file in files_of(DEVICE)
        for line in file.read_text(encoding="utf-8").splitlines()
        if ("fala_export" in line or "fala_sim" in line)
        and not line.strip().startswith((">>>", "..."))
    ]
