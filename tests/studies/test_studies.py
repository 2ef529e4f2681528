"""Every study is whole in its folder, and the laboratory finds it there."""

import pytest

pytest.importorskip("pandas")

from checkout import needs_records
from fala_sim.experiments.study import FOLDER, find_study, studies
from sim_command import done, failed, run

STUDIES = studies()


def test_the_command_lists_the_studies_with_their_questions():
    words = " ".join(run("study", "--help").stdout.split())
    assert STUDIES and all(name in words for name in STUDIES)
    assert "No such command" in failed("study", "none", status=2)


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_has_its_question_and_its_readme(name):
    assert STUDIES[name].endswith("?")
    assert STUDIES[name] in run("study", name, "--help").stdout
    readme = (FOLDER / name / "README.md").read_text(encoding="utf-8")
    assert f"fala-sim study {name}" in readme


@needs_records
@pytest.mark.parametrize("name", STUDIES)
def test_the_tables_of_a_study_are_those_of_its_records(name):
    study = find_study(name)
    written = {file.stem: file for file in (study.results / "tables").glob("*.md")}
    assert set(written) == set(study.tables())
    for table_name, entry in study.tables().items():
        table = entry.of(study.results)
        assert written[table_name].read_text(encoding="utf-8") == table.markdown() + "\n"
    assert done("study", name, table_name, "--json")["title"] == table.title


@pytest.mark.parametrize("name", STUDIES)
def test_missing_records_name_the_command_that_makes_them(name, tmp_path):
    table_name, *_ = find_study(name).tables()
    line = failed("study", name, table_name, "--results", tmp_path / "none")
    assert f"`fala-sim study {name} {table_name} --run` makes them" in line
    assert not (tmp_path / "none").exists()
