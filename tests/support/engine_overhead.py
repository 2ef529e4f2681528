"""What Ray costs a run of 200 jobs, against this machine's own engine; run by hand.

    python tests/support/engine_overhead.py [SECONDS OF A JOB] [JOBS]

Both engines run the same jobs in turn, a slice each, on two cores' worth of processes. Processor
time is that of this process and of all that it started: Ray's own daemons, and every job.
"""

import contextlib
import json
import sys
import tempfile
import time
from pathlib import Path

import psutil

from driver import run, task_of
from fala_sim.engine.cluster import RayEngine
from fala_sim.engine.local import LocalEngine
from fala_sim.records.store import RecordKey
from giving import burn

ROUNDS = 2


def processor_time():
    """Of everything that was started and lives, with what it has waited for."""
    own = psutil.Process()
    total = 0.0
    for process in (own, *own.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:4])
    return total


def main(seconds=1.0, jobs=200):
    engines = {"local": LocalEngine(2), "ray": RayEngine(None, 2)}
    spent = {name: {"processor": 0.0, "wall": 0.0} for name in engines}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(-1, ROUNDS):
            for name, engine in engines.items():
                count = 2 if number < 0 else jobs // ROUNDS  # the first starts what stays
                keys = [RecordKey("labels", name, "m", f"{number} {n}", 0) for n in range(count)]
                tasks = [task_of(key.user, burn, key, seconds) for key in keys]
                before, start = processor_time(), time.perf_counter()
                failures, _ = run(Path(folder), tasks, engine)
                assert not failures, failures
                if number >= 0:
                    spent[name]["processor"] += processor_time() - before
                    spent[name]["wall"] += time.perf_counter() - start
                print(number, json.dumps(spent), file=sys.stderr, flush=True)
    shares = {what: spent["ray"][what] / spent["local"][what] - 1 for what in spent["ray"]}
    print(json.dumps({"jobs": jobs, "seconds": seconds, **spent, "overhead": shares}))


if __name__ == "__main__":
    main(*(kind(word) for kind, word in zip((float, int), sys.argv[1:], strict=False)))
