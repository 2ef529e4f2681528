"""The laboratory's command, called as a user calls it."""

import pytest

from driver import InProcess
from fala_sim import engine
from fala_sim.cli import main
from fala_sim.experiments.replacement import jobs
from laboratory import write_data
from program import Program

PROGRAM = Program(main, "fala-sim")
run, works, done = PROGRAM.run, PROGRAM.works, PROGRAM.done
fails, failed = PROGRAM.fails, PROGRAM.failed


def run_small(factory, table, kind, *options, **sizes):
    """The results of a table's run on one user of a small data set, of one of the formats.

    Its jobs run in this process, where ``test_laboratory.py`` runs them in processes of their own,
    and two budgets of forward passes stand for all.
    """
    folder = write_data(factory.mktemp("data") / "small", **sizes)
    results = factory.mktemp("results")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(engine, "open_engine", lambda *_, **__: InProcess())
        patched.setattr(jobs, "BUDGETS", (0, 20))
        works(
            "table", table, "--run", "--data", f"{kind}:{folder}", "--users", "1", "--new", "bert",
            *options, "--results", results,
        )  # fmt: skip
    return results
