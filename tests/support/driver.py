"""A driver's part: it writes what a job gives, as a run does."""

from functools import partial

from fala_sim.engine.local import LocalEngine
from fala_sim.engine.task import Call, Ended, Engine, Output, Task
from fala_sim.experiments.runner import run_tasks
from fala_sim.records import Store


def write(results, giving):
    """Write what a job of this very process gives."""
    failures, _ = run(results, [Task("here", lambda: Call(lambda: giving), bool)], InProcess())
    assert not failures


def run(results, tasks, engine=None, jobs=2):
    """Run tasks; what failed, and what was said."""
    said = []
    failures = run_tasks(tasks, Store(results), engine=engine or LocalEngine(jobs), log=said.append)
    return failures, said


def task_of(label, function, *arguments):
    """A task that is never recorded."""
    return Task(label, lambda: Call(partial(function, *arguments)), bool)


class InProcess(Engine):
    """Runs jobs here, one after another: for what is no matter of processes."""

    def __init__(self):
        self.labels = []

    def run(self, ready):
        for task, call in ready:
            self.labels.append(task.label)
            for item in call.job():
                yield Output(task, item)
            yield Ended(task, "", 0.0)
