"""Who may import whom: between the packages, and between the rooms of the device."""

import ast
import subprocess
import sys

import pytest

import fala
import fala_export
from base_install import NETWORK, PACKAGES
from checkout import ROOT
from imports import (
    arrows_of,
    arrows_of_rooms,
    attributes_of,
    circles,
    imports_of,
    modules_of,
    python_files,
    room_of,
)

DEVICE = ROOT / "sdk" / "fala"
EXPORTER = ROOT / "export" / "fala_export"
LABORATORY = ROOT / "device_sim" / "fala_sim"

#: Rooms whose modules the other packages may import.
PUBLIC = {"release", "playground", "testing", "cli"}

#: What an extra brings, and ways to the network, by the modules that may use them.
EXTRAS = {
    "fala.__main__": {"fala_command"},  # not an extra: the command that loads all others
    "fala.bundle.signature": {"cryptography"},
    "fala.playground.page.guard": {"starlette"},
    # On this machine's own address; anyio is what starlette is made with.
    "fala.playground.page.server": {"anyio", "socket", "starlette", "uvicorn"},
    "fala.store.encryption": {"cryptography"},
    "fala.release.population.estimation": {"scipy"},  # the walk says what it does without
    "fala.release.joint_rows": {"scipy"},  # NumPy does the same where it is not installed
    "fala.updates.client": {"filelock", "tuf", "urllib"},
    "fala.release.row_files": {"pyarrow"},
    "fala.updates.fetcher": {"http", "socket", "tuf", "urllib", "urllib3"},
}

#: Those of them that import it at once: only ``Device.update`` imports them, when it is called.
LATE = {"fala.updates.client", "fala.updates.fetcher"}

#: Rooms that compute, and what of the standard library they have no use for: files and clocks.
PURE = ("solver", "selection", "text")
IMPURE = {
    "datetime", "io", "json", "logging", "os", "pathlib", "shutil", "sqlite3", "subprocess",
    "tempfile", "time",
}  # fmt: skip

MODULES = modules_of(DEVICE)


def files_of(*folders):
    files = [file for folder in folders for file in python_files(folder)]
    return pytest.mark.parametrize("file", files, ids=lambda file: str(file.relative_to(ROOT)))


def public(module, name):
    """Whether another package may take the name from the module; None is the module itself."""
    if module == "fala":
        return name in {None, "__version__", *fala.__all__, *PUBLIC}
    return room_of(module) in PUBLIC


def past_the_doors(file):
    """What a file takes of ``fala`` that no door offers."""
    imported = [
        str(used)
        for used in imports_of(file)
        if used.package == "fala" and not public(used.module, used.name)
    ]
    by_dot = [f"fala.{name}" for name in attributes_of(file, "fala") if not public("fala", name)]
    return imported + by_dot


def taken_from(file, *packages):
    return [str(used) for used in imports_of(file) if used.package in packages]


@files_of(DEVICE)
def test_the_device_imports_its_base_install_only(file):
    """No torch, no way to the network, and neither of the other packages."""
    allowed = {"fala", *PACKAGES, *sys.stdlib_module_names} - NETWORK
    allowed |= {"_typeshed", "typing_extensions"}  # types alone, of no package
    module = next(name for name, path in MODULES.items() if path == file)
    allowed |= EXTRAS.get(module, set())
    assert [str(used) for used in imports_of(file) if used.package not in allowed] == []


def test_extras_are_behind_one_call():
    """Whoever never asks for an update never imports a way to the network."""
    assert set(MODULES) >= set(EXTRAS) >= LATE
    users = {module for module, targets in arrows_of(DEVICE).items() if targets & LATE}
    assert users - LATE == {"fala.device"}
    (call,) = [
        node
        for node in ast.walk(ast.parse(MODULES["fala.device"].read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and "fala.updates.client" in ast.unparse(node)
    ]
    assert call.name == "update"


@files_of(EXPORTER)
def test_the_exporter_uses_the_doors(file):
    assert past_the_doors(file) == []
    assert taken_from(file, "fala_sim") == []


@files_of(LABORATORY)
def test_the_laboratory_uses_the_doors(file):
    """Of the exporter it takes what the package's own door offers."""
    assert past_the_doors(file) == []
    for used in imports_of(file):
        assert used.package != "fala_export" or used.module == "fala_export", str(used)
    assert set(attributes_of(file, "fala_export")) <= set(fala_export.__all__)


@files_of(ROOT / "benchmarks", ROOT / "examples", ROOT / "recipes")
def test_all_else_uses_the_doors(file):
    assert past_the_doors(file) == []


@files_of(ROOT / "benchmarks", ROOT / "examples")
def test_benchmarks_and_examples_measure_the_device_alone(file):
    assert taken_from(file, "fala_export", "fala_sim") == []


def test_the_plugin_loads_nothing_of_the_device():
    """pytest imports it before a project's ``conftest.py`` has set anything."""
    (file,) = (DEVICE.parent / "pytest_fala.py",)
    assert past_the_doors(file) == []
    code = "import sys, pytest_fala; print(*({'fala', 'numpy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_an_app_loads_no_tests():
    code = "import sys, fala; print(*(name for name in sys.modules if 'testing' in name))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "fala.testing" not in done.stdout.split()


def test_rooms_import_what_the_contracts_say():
    """``[tool.importlinter]`` in pyproject.toml has the floors; a new arrow is a change there."""
    done = subprocess.run(
        ["lint-imports", "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


@files_of(*(DEVICE / room for room in PURE))
def test_rooms_that_compute_use_no_files_and_no_clock(file):
    assert taken_from(file, *IMPURE) == []


@pytest.mark.parametrize("package", [DEVICE, EXPORTER, LABORATORY], ids=lambda path: path.name)
def test_no_module_imports_itself_in_the_end(package):
    arrows = arrows_of(package)
    late = {"fala.playground.releases"}  # fala.sample_release, when it is asked for
    assert circles({module: wanted - late for module, wanted in arrows.items()}) == []


@pytest.mark.parametrize("package", [EXPORTER, LABORATORY], ids=lambda path: path.name)
def test_no_room_imports_itself_in_the_end(package):
    assert circles(arrows_of_rooms(arrows_of(package))) == []


def test_no_import_hides(tmp_path):
    """The tests above see what they must: in a function, for types only, and by a dot."""
    file = tmp_path / "hiding.py"
    file.write_text(
        "from typing import TYPE_CHECKING\n"
        "import fala\n"
        "if TYPE_CHECKING:\n    from fala.store import store\n"
        "def run():\n    import fala.bundle.reading\n    return fala.solver, fala.Device\n"
    )
    assert past_the_doors(file) == [
        f"{file}:4: from fala.store import store",
        f"{file}:6: import fala.bundle.reading",
        "fala.solver",
    ]


def test_circles_are_found(tmp_path):
    package = tmp_path / "package"
    (package / "one").mkdir(parents=True)
    (package / "two").mkdir()
    for name, imported in {
        "__init__": "one.here",
        "one/__init__": "one.here",
        "one/here": "two.here",
        "one/there": "two.there",
        "two/here": "one.there",
        "two/there": "two.deep",
        "two/deep": "two.there",
    }.items():
        (package / f"{name}.py").write_text(f"def late():\n    import package.{imported}\n")
    arrows = arrows_of(package)
    assert circles(arrows) == [("package.two.deep", "package.two.there")]
    assert circles(arrows_of_rooms(arrows)) == [("one", "two")]
