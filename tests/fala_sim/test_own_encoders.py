"""An app without a vendor replaces its encoder, from a run to its table."""

import math

import pytest

from fala_sim.experiments.own.jobs import SIZES
from fala_sim.experiments.own.ways import WAYS
from fala_sim.records.store import read_records
from sim_command import run_small

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    sizes = {"documents": 84, "annotators": 4}
    return run_small(tmp_path_factory, "own", "lewidi", "--old", "tfidf", **sizes)


def test_every_way_is_measured_at_each_number_of_labels(results):
    records = {(record["method"], record["labels"]): record for record in read_records(results)}
    sizes = {labels for _, labels in records}
    assert sizes <= set(SIZES) and 50 in sizes
    assert set(records) == {(way, size) for way in WAYS for size in sizes}
    for (way, size), record in records.items():
        assert math.isfinite(record["scores"]["loss"])
        # Who fits to the labels embeds them; who replaces embeds texts without a label, too.
        passes = {"own-old": 0, "own-instant": 0, "own-others": 0, "own-20": 20,
                  "own-all": record["texts"]}  # fmt: skip
        assert record["passes"] == passes.get(way, size)
        if way == "own-old":
            assert record["flips"]["old"] == {"negative": 0, "positive": 0}
