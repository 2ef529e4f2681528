import pytest

from bundles import make_head, write_onnx_release, write_word_vectors
from replace_command import METRICS, MODELS, data_rows, jsonl, result_of, run, untimed


def check_figures(figures):
    assert figures["seconds"]["total"] > 0
    for metric in METRICS:
        assert list(figures[metric]) == MODELS
        assert all(value is None or 0 <= value <= 1 for value in figures[metric].values())


def check_result(result, budget, bridged=True):
    assert {"old", "new", "data", "bridge", "users", "mean"} <= set(result)
    assert result["budget"] == budget
    assert result["bridge"].startswith("none") != bridged
    for user in result["users"]:
        assert isinstance(user["user"], str)
        assert user["documents"] > 0
        assert 0 <= user["forward_passes"] <= budget
        assert user["decision"] in ("personal", "vendor")
        assert (user["instant"] is not None) == bridged
        assert (user["f1"]["instant"] is not None) == bridged
        if bridged:
            assert 0 < user["instant"]["seconds"] < user["seconds"]["total"]
        check_figures(user)
    check_figures(result["mean"])
    for metric in METRICS:
        values = [user[metric]["fala"] for user in result["users"]]
        if None not in values:
            assert result["mean"][metric]["fala"] == pytest.approx(sum(values) / len(values))


def test_built_in_trial_as_json():
    result = result_of("--old", "glove", "--new", "bert", "--users", 2)
    check_result(result, 50)
    assert (result["old"], result["new"]) == ("glove", "bert")
    assert "synthetic" in result["data"]
    assert result["bridge"] == "learned on 2000 public texts"
    assert len(result["users"]) == 2
    for user in result["users"]:
        assert user["forward_passes"] == 50
        assert [view["name"] for view in user["views"]] == ["bert", "glove"]
    # What is to be seen: an answer that beats both models at once, and a better one.
    auc = result["mean"]["auc"]
    assert max(auc["old_personal"], auc["new_global"]) < auc["instant"] < auc["fala"]


def test_a_trial_as_a_table(tiny, data):
    done = run(*tiny, "--users", 1)
    assert done.returncode == 0
    for part in (
        "synthetic", "AUC", "F1", "accuracy", "instant", "forwards", "decision",
        "at most 50 forward passes", "bridge: learned on 2000", "\nu1 ", "\nmean ",
    ):  # fmt: skip
        assert part in done.stdout
    assert done.stderr == ""
    done = run(*tiny, "--data", data, "--budget", 7)
    assert "at most 7 forward passes" in done.stdout
    assert "tiny vectors answers beside tiny encoder for 2 of 2 users" in done.stdout


def test_a_trial_without_a_bridge_says_so(tiny, tmp_path):
    (tmp_path / "few.jsonl").write_text(jsonl(data_rows(public=8)))
    command = *tiny, "--data", tmp_path / "few.jsonl"
    check_result(result_of(*command), 100, bridged=False)
    done = run(*command)
    assert "at most 100 forward passes" in done.stdout
    assert "bridge: none: 8 distinct public texts are too few" in done.stdout
    (row,) = [line for line in done.stdout.splitlines() if line.startswith("u0 ")]
    assert row.split().count("-") == 4


@pytest.mark.parametrize("budget", [0, 1, 13])
def test_the_budget_is_kept(tiny, data, budget):
    result = result_of(*tiny, "--data", data, "--budget", budget)
    check_result(result, budget)


@pytest.mark.parametrize("matching", [False, True])
def test_data_from_a_file_and_from_standard_input(tmp_path, matching):
    task = "matching" if matching else "classification"
    write_word_vectors(tmp_path / "old.fala")
    write_onnx_release(tmp_path / "new.fala", make_head(task))
    bundles = "--old", tmp_path / "old.fala", "--new", tmp_path / "new.fala"
    content = jsonl(data_rows(matching))
    (tmp_path / "rows.jsonl").write_text(content)
    read = result_of(*bundles, "--data", tmp_path / "rows.jsonl")
    check_result(read, 50)
    assert [user["user"] for user in read["users"]] == ["u0", "u1"]
    assert [user["documents"] for user in read["users"]] == [30, 30]
    piped = result_of(*bundles, "--data", "-", stdin=content)
    assert piped["data"] == "standard input"
    assert untimed({**read, "data": ""}) == untimed({**piped, "data": ""})
    assert [user["user"] for user in result_of(*bundles, "--data", tmp_path / "rows.jsonl",
                                               "--users", 1)["users"]] == ["u0"]  # fmt: skip


def test_data_as_a_table_names_its_file(tiny, data):
    done = run(*tiny, "--data", data)
    assert done.returncode == 0
    assert str(data) in done.stdout
    assert "synthetic" not in done.stdout
