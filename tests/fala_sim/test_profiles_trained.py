import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from fala_sim.experiments.profiles.profile import MIB, Figure, Profile
from fala_sim.experiments.profiles.rows import write_rows
from fala_sim.experiments.profiles.run import run_profile
from fala_sim.experiments.profiles.trained import DOCUMENTS, train
from trained import documents, make_head, make_situation


@pytest.fixture(scope="module")
def situation(tmp_path_factory):
    """A user, and a tiny transformer that arrives."""
    folder = tmp_path_factory.mktemp("profiles") / "new"
    return make_situation(folder, *documents(40, seed=1), make_head(scale=0.1))


@pytest.fixture(scope="module")
def rows(situation, tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "rows.json"
    return write_rows(path, situation.user.train, situation.user.train_labels)


def test_a_training_is_one_epoch_over_a_few_documents(situation, rows):
    job = {
        "work": "full",
        "rows": str(rows),
        "old": str(situation.old.path),
        "new": str(situation.new.path),
        "transformer": str(situation.transformer),
        "seed": 0,
    }
    told = {}
    stages = []
    train(job, lambda step, **fields: told.update({step: fields}), stages.append)
    assert stages == ["train"]
    assert told["measured"]["documents"] == DOCUMENTS < len(situation.user.train)
    cost = told["measured"]["cost"]["stages"]["train"]
    assert cost["backward_passes"] == DOCUMENTS
    assert cost["seconds"] > 0


@pytest.mark.thorough
def test_a_training_without_memory_for_it_fails(situation, rows, tmp_path):
    """Where a replacement is done with more to spare: see ``test_profiles``."""
    device = Profile("test", "Test", Figure(1, "this test"), Figure(150 * MIB, "this test"))
    result = run_profile(
        device, (situation.old.path, situation.new.path), rows, tmp_path / "out",
        work="full", transformer=situation.transformer,
    )  # fmt: skip
    assert result["outcome"] == "out of memory"
    assert "alone hold" in result["message"]
    assert result["predicted"] is None
    assert result["measured"]["device"] is None
    assert result["measured"]["start"]["held"] > 150 * MIB
