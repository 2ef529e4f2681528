"""Processes that ask a device a text, one after another, and die of it.

    die_on_trial.py DEVICE POINT SIGNAL TIMES

POINT is ``load``, while a transformer is loaded, or ``answer``, when it is first asked. With
``none`` for a signal there is one process, which says that it is there, and waits.
"""

import os
import signal
import sys
import time
from pathlib import Path

from fala.backbones import OnnxEncoder
from fala.device import Device


def ask(folder, point, name):
    def die(*_, **__):
        if name == "none":
            print("waiting", flush=True)
        else:
            os.kill(os.getpid(), getattr(signal, name))
        time.sleep(60)

    setattr(OnnxEncoder, "__init__" if point == "load" else "encode", die)
    with Device.open(Path(folder)) as device:
        device.predict_proba(["good film"])


def main(folder, point, name, times):
    if name == "none":
        ask(folder, point, name)
    for _ in range(int(times)):
        # Forked before there are threads: what takes long is the imports.
        if not (child := os.fork()):
            ask(folder, point, name)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status) or os.WTERMSIG(status) != getattr(signal, name):
            sys.exit(f"a process ended with status {status}")


if __name__ == "__main__":
    main(*sys.argv[1:])
