"""Jobs of the laboratory's tests: cheap ones, and some that end badly."""

import os
import signal
import time

from fala import DataError
from fala_sim.engine.shelf import local_path
from fala_sim.experiments.runner import Made
from fala_sim.records.store import RecordKey

#: Seconds for which ``stay`` does.
STAYS = 120


def give(*keys, seconds=0.0, spent=None):
    """A record a key, each after some seconds."""
    for number, key in enumerate(keys):
        time.sleep(seconds)
        yield Made(key, {"given": number, "process": os.getpid()}, spent or ())


def die(key):
    """Give a record, and be killed."""
    yield Made(key, {"given": 0})
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGKILL)


def stay(key):
    """Give a record, and work on for long."""
    yield Made(key, {"process": os.getpid()})
    time.sleep(STAYS)


def refuse(key):
    """Give a record, and what is no record, and fail."""
    yield Made(key, {"given": 0})
    yield Made(RecordKey("labels", "d", "m", "no json", 0), {"given": object})
    raise DataError("enough of this")


def read(key, file, folder):
    """What is in a file and in a folder of the driver's, and whether they are somewhere else."""
    files = sorted(path.name for path in local_path(folder).rglob("*") if path.is_file())
    text = local_path(file).read_text()
    yield Made(key, {"text": text, "files": files, "moved": local_path(file) != file})


def threads(key):
    """The numeric libraries' threads."""
    yield Made(key, {"threads": os.environ["OMP_NUM_THREADS"]})


def take(key, seconds):
    """When it ran, and the GPUs that it may use."""
    start = time.time()
    time.sleep(seconds)
    gpu = os.environ.get("CUDA_VISIBLE_DEVICES")
    yield Made(key, {"start": start, "end": time.time(), "gpu": gpu})
