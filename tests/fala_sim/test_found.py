"""What stands in a package is found, and nothing else is imported.

``test_extend.py`` adds a method, a data format and an experiment by a file each.
"""

import sys

import pytest

from fala_sim.data.found import found


def test_a_part_of_each_folder_is_found_and_imported_alone(tmp_path, monkeypatch):
    files = ("__init__", "large/__init__", "large/tables", "large/jobs", "other/__init__")
    for name in files:
        path = tmp_path / f"house/{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert [module.__name__ for module in found("house", "tables")] == ["house.large.tables"]
    assert "house.large.jobs" not in sys.modules
    (tmp_path / "house/other/tables.py").write_text("import no_such_module")
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        list(found("house", "tables"))
    for name in [name for name in sys.modules if name.partition(".")[0] == "house"]:
        del sys.modules[name]
