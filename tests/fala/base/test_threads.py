"""BLAS has one thread inside the context, and its former number of threads after it."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event, Thread

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController, threadpool_limits

from fala.base.threads import one_blas_thread


def threads():
    """Return how many threads each loaded BLAS may use."""
    libraries = ThreadpoolController().select(user_api="blas").info()
    return [library["num_threads"] for library in libraries]


@pytest.fixture(autouse=True)
def two_threads():
    np.ones((2, 2)) @ np.ones((2, 2))
    with threadpool_limits(2, user_api="blas"):
        yield


def test_the_limit_is_one_inside_and_restored_outside():
    before = threads()
    with one_blas_thread():
        assert set(threads()) == {1}
        with one_blas_thread():
            assert set(threads()) == {1}
        assert set(threads()) == {1}
    assert threads() == before
    with pytest.raises(KeyboardInterrupt), one_blas_thread():
        raise KeyboardInterrupt
    assert threads() == before


def test_concurrent_contexts_restore_the_limit():
    before, all_inside = threads(), Barrier(4, timeout=30)

    def work(_):
        with one_blas_thread():
            all_inside.wait()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert threads() == before
    with one_blas_thread():
        assert set(threads()) == {1}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_can_set_the_limit_while_another_thread_does():
    end = Event()

    def work():
        while not end.is_set():
            with one_blas_thread():
                pass

    thread = Thread(target=work)
    thread.start()
    try:
        for _ in range(6):
            if not (child := os.fork()):
                signal.alarm(20)  # ends a child that waits for ever
                with one_blas_thread():
                    os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        end.set()
        thread.join()
