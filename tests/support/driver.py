"""Helpers that run tasks and write the records of jobs, as a run does."""

from functools import partial

from fala_sim.engine.job import Call, Engine, Job, JobEnd, Output
from fala_sim.engine.local import LocalEngine
from fala_sim.experiments.runner import run_jobs
from fala_sim.records.store import RecordStore


def write(results, giving):
    """Write the entries of a job in this process."""
    failures, _ = run(results, [Job("here", lambda: Call(lambda: giving), bool)], InProcess())
    assert not failures


def run(results, tasks, engine=None, jobs=2):
    """Run tasks; return the failures and the lines of the log."""
    log = []
    failures = run_jobs(
        tasks, RecordStore(results), engine=engine or LocalEngine(jobs), log=log.append
    )
    return failures, log


def task_of(label, function, *arguments):
    """A task that is never recorded."""
    return Job(label, lambda: Call(partial(function, *arguments)), bool)


class InProcess(Engine):
    """Runs jobs one after another in this process."""

    def __init__(self):
        self.labels = []

    def run(self, ready):
        for task, call in ready:
            self.labels.append(task.label)
            for item in call.job():
                yield Output(task, item)
            yield JobEnd(task, "", 0.0)
