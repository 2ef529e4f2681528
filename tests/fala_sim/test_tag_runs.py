"""Tags in the laboratory, from a run to its table."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from fala_sim.records.store import read_records
from sim_command import failed, run_small

METHODS = ("old", "global-words", "words", "top", "fala-instant", "knn")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    options = ("--methods", ",".join(METHODS))
    sizes = {"documents": 40, "annotators": 3}
    return run_small(tmp_path_factory, "tags", "lewidi-tags", *options, **sizes)


def test_figures_are_means_over_the_tags(results):
    records = {record["method"]: record for record in read_records(results, "replacement")}
    assert set(records) == {*METHODS} - {"knn"}  # which takes classes alone
    for record in records.values():
        truth, logits = np.array(record["truth"]), np.array(record["logits"])
        assert truth.shape == logits.shape == (record["test"], 2)
        areas = [roc_auc_score(truth[:, tag], logits[:, tag]) for tag in range(2)]
        assert record["scores"]["auc"] == pytest.approx(np.mean(areas), abs=1e-3)
        right = (logits > 0) == truth
        assert record["scores"]["accuracy"] == pytest.approx(right.mean(), abs=1e-3)
        assert record["flips"] == {}


def test_tables_of_classes_exclude_tags(results):
    message = failed("table", "headline", "--results", results)
    assert "no replacement of classification, matching is recorded" in message
