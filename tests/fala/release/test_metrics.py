"""Metrics against scikit-learn, and the threads of BLAS against threadpoolctl."""

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score, roc_auc_score

from fala.release.metrics import auc, f1, scores
from fala.solver.threads import one_blas_thread


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("classes", [2, 3, 5])
def test_scores_are_scikit_learns(classes, seed):
    random = np.random.default_rng(seed)
    truth = np.concatenate([np.arange(classes), random.integers(classes, size=60)])
    # Few distinct values: many ties, some of them between the classes of a row.
    probabilities = random.integers(1, 5, size=(len(truth), classes)).astype(float)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    ours = scores(truth, probabilities)
    decided = probabilities.argmax(axis=1)
    if classes == 2:
        theirs = roc_auc_score(truth, probabilities[:, 1]), f1_score(truth, decided)
    else:
        theirs = (
            roc_auc_score(truth, probabilities, multi_class="ovr", average="macro"),
            f1_score(truth, decided, average="macro", labels=range(classes), zero_division=0),
        )
    assert (ours["auc"], ours["f1"]) == pytest.approx(theirs)
    assert ours["accuracy"] == pytest.approx(accuracy_score(truth, decided))


def test_what_is_undefined():
    probabilities = np.array([[0.9, 0.1], [0.2, 0.8]])
    assert scores(np.array([0, 0]), probabilities) == {"auc": None, "f1": 0.0, "accuracy": 0.5}
    assert auc(np.array([True, False]), np.array([0.5, 0.5])) == 0.5
    assert f1(np.array([False]), np.array([False])) == 0.0
    # A class that no row has does not spoil the others' mean.
    three = scores(np.array([0, 1]), np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1]]))
    assert three["auc"] == 1.0


def test_one_blas_thread_gives_the_threads_back():
    threadpoolctl = pytest.importorskip("threadpoolctl", reason="threadpoolctl is not installed")

    def threads():
        pools = threadpoolctl.threadpool_info()
        return [pool["num_threads"] for pool in pools if pool["internal_api"] == "openblas"]

    if not threads():
        pytest.skip("NumPy's BLAS is not OpenBLAS here")
    with threadpoolctl.threadpool_limits(2):
        before = threads()
        with pytest.raises(ZeroDivisionError), one_blas_thread():
            assert set(threads()) == {1}
            with one_blas_thread():
                assert set(threads()) == {1}
            assert set(threads()) == {1}
            raise ZeroDivisionError
        assert threads() == before

        # Two threads that overlap: the first to leave does not let go for the other.
        first, second = one_blas_thread(), one_blas_thread()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert set(threads()) == {1}
        second.__exit__(None, None, None)
        assert threads() == before
