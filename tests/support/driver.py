"""A driver's part: it writes what a job gives, as a run does."""

from functools import partial

from fala_sim.engine.local import LocalEngine
from fala_sim.engine.task import Call, Ended, Engine, Gave, Task
from fala_sim.run import runner
from fala_sim.run.runner import run_tasks


def write(results, giving):
    """Write what a job of this very process gives."""
    for item in giving:
        assert not runner._keep(results, item, None)


def run(results, tasks, engine=None, jobs=2):
    """Run tasks; what failed, and what was said."""
    said = []
    failures = run_tasks(tasks, results, engine=engine or LocalEngine(jobs), say=said.append)
    return failures, said


def task_of(label, function, *arguments):
    """A task that is never recorded."""
    return Task(label, lambda: Call(partial(function, *arguments)), lambda: False)


class InProcess(Engine):
    """Runs jobs here, one after another: for what is no matter of processes."""

    def __init__(self):
        self.labels = []

    def run(self, ready):
        for task, call in ready:
            self.labels.append(task.label)
            for item in call.job():
                yield Gave(task, item)
            yield Ended(task, "", 0.0)
