"""One BLAS thread inside, and what was set before outside."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event, Thread

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController, threadpool_limits

from fala.solver.threads import one_blas_thread


def threads():
    """How many threads each BLAS that is loaded may use."""
    found = ThreadpoolController().select(user_api="blas").info()
    return [library["num_threads"] for library in found]


@pytest.fixture(autouse=True)
def two():
    np.ones((2, 2)) @ np.ones((2, 2))
    with threadpool_limits(2, user_api="blas"):
        yield


def test_it_is_one_inside_and_as_before_outside():
    before = threads()
    with one_blas_thread():
        assert set(threads()) == {1}
        with one_blas_thread():
            assert set(threads()) == {1}
        assert set(threads()) == {1}
    assert threads() == before


def test_the_first_of_two_to_leave_does_not_let_go_for_the_other():
    before = threads()
    first, second = one_blas_thread(), one_blas_thread()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert set(threads()) == {1}
    second.__exit__(None, None, None)
    assert threads() == before


def test_it_is_taken_back_after_an_error():
    before = threads()
    with pytest.raises(KeyboardInterrupt), one_blas_thread():
        raise KeyboardInterrupt
    assert threads() == before


def test_several_threads_leave_it_as_it_was():
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
def test_a_fork_can_limit_them_while_another_thread_does():
    end = Event()

    def work():
        while not end.is_set():
            with one_blas_thread():
                pass

    thread = Thread(target=work)
    thread.start()
    try:
        for _ in range(12):
            if not (child := os.fork()):
                signal.alarm(20)  # ends a child that waits for ever
                with one_blas_thread():
                    os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        end.set()
        thread.join()
