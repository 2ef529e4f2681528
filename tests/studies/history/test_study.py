"""A vendor's releases over a user's life, on built-in backbones and small data."""

import sys

import pytest

from fala import Bundle
from fala_sim.data.division import Partition
from fala_sim.prepare.releases import load_prepared, prepare_releases
from fala_sim.prepare.sources import find_source
from fala_sim.records.store import RecordKey
from laboratory import write_data
from sim_command import failed
from studies.history import jobs

pytestmark = pytest.mark.slow

#: Forward passes of each replacement.
PASSES = {"20": 20, "all": sys.maxsize}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Prepared releases: glove -> bert, and glove -> glove with a bridge from bert."""
    data, work = (tmp_path_factory.mktemp(name) for name in ("data", "work"))
    write_data(data, annotators=3, documents=480)
    glove, bert = (find_source(name, work) for name in ("glove", "bert"))
    return [
        prepare_releases(
            Partition(f"lewidi:{data}", data, users=1, seed=0), work, glove, new,
            role="test", log=lambda _: None, earlier=earlier,
        )
        for new, earlier in ((bert, ()), (glove, (bert,)))
    ]  # fmt: skip


@pytest.fixture(scope="module")
def lives(folders):
    (user,) = load_prepared(folders[0]).division.users
    key = RecordKey("history", "posts", "fala", user.name, 0)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(jobs, "PASSES", PASSES)
        return list(jobs.history(key, folders[0], folders, frozenset()))


def test_a_release_has_bridges_from_all_earlier_backbones(folders):
    bert, last = (load_prepared(folder).shipped.path for folder in folders)
    assert set(Bundle.open(last).bridges()) == {Bundle.open(bert).backbone_digest}


def test_a_device_installs_all_releases(lives, folders):
    (user,) = load_prepared(folders[0]).division.users
    assert [entry.key.variant for entry in lives] == list(PASSES)
    for entry in lives:
        steps = entry.content["steps"]
        assert [step["backbone"] for step in steps] == ["glove", "bert", "glove"]
        labels = [step["labels"] for step in steps]
        assert labels == sorted(labels) and labels[-1] == len(user.train)
        assert steps[0]["scores"] == pytest.approx(steps[0]["begun"], abs=1e-9)
        assert entry.content["forward_again"]["auc"] is not None
        assert entry.content["rolled_back"]["auc"] is not None
        assert entry.content["skipped"]["auc"] is not None
    spent = [entry.content["steps"][1]["forward_passes"] for entry in lives]
    assert 0 < spent[0] <= 20 < spent[1]
    # With all texts encoded, the carried model equals one that began here.
    last = lives[-1].content["steps"][1]
    assert last["scores"]["auc"] == pytest.approx(last["begun"]["auc"], abs=0.01)


def test_another_last_release_is_refused(tmp_path):
    options = ("--run", "--new", "minilm", "--results", tmp_path / "results")
    message = failed("study", "history", "history", *options)
    assert "the last release of this study is mpnet" in message
