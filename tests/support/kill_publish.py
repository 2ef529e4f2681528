"""Publishes in copies of a repository and kills itself at every file: ``REPO KEYS BUNDLE OUT``.

Each copy OUT/WORK-N died when its N-th file was about to get its name; WORK is ``publish`` or
``rotate``. The last of each was not killed.
"""

import os
import shutil
import signal
import sys
import time
from datetime import datetime, timezone
from pathlib import Path

from fala_export.base import files as writing
from fala_export.updates import publishing
from fala_export.updates.keys import Keyring


def die():
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def dying(point):
    write, count = writing.write_atomically, iter(range(1_000))

    def wrapped(path, fill):
        number = next(count)

        def filled(temporary):
            fill(temporary)
            if number == point:
                die()

        write(path, filled)

    return wrapped


def run(name, folder, keys, bundle):
    ring, now = Keyring.read([keys]), datetime.now(timezone.utc)
    if name == "publish":
        publishing.publish(folder, bundle, ring, now)
    else:
        publishing.rotate_key(folder, "targets", ring, keys, now)


def main(source, keys, bundle, out):
    for name in ("publish", "rotate"):
        for point in range(100):
            folder = shutil.copytree(source, Path(out) / f"{name}-{point}")
            own = shutil.copytree(keys, Path(out) / f"keys-{name}-{point}")
            child = os.fork()
            if child == 0:
                writing.write_atomically = publishing.write_atomically = dying(point)
                run(name, folder, own, Path(bundle))
                os._exit(0)
            if os.waitpid(child, 0)[1] == 0:
                break


if __name__ == "__main__":
    main(*sys.argv[1:])
