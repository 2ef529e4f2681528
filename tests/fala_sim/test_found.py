"""What stands in a package is found, and nothing else is imported."""

import sys

import pytest

from fala_sim.cli.fleet import fleet_command
from fala_sim.cli.profiles import profiles_command
from fala_sim.data.found import found


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package with a module, a package with a part, and one without it."""
    for name in ("house", "house/large", "house/other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    for name in ("house/small", "house/large/tables", "house/large/jobs", "house/other/jobs"):
        (tmp_path / f"{name}.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    yield "house"
    for name in [name for name in sys.modules if name.partition(".")[0] == "house"]:
        del sys.modules[name]


def test_a_file_is_found(package):
    assert [module.__name__ for module in found(package)] == ["house.small"]


def test_a_part_of_a_folder_is_found(package):
    assert [module.__name__ for module in found(package, "tables")] == ["house.large.tables"]
    assert "house.large.jobs" not in sys.modules
    jobs = [module.__name__ for module in found(package, "jobs")]
    assert jobs == ["house.large.jobs", "house.other.jobs"]


def test_a_module_that_cannot_be_imported_is_an_error(package, tmp_path):
    (tmp_path / "house/other/tables.py").write_text("import no_such_module")
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        list(found(package, "tables"))


def test_experiments_add_their_commands():
    from fala_sim.cli import main

    assert main.commands["fleet"] is fleet_command
    assert main.commands["profiles"] is profiles_command
