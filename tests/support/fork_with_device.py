"""A process that forks while its device has a transformer loaded, and threads at work.

    fork_with_device.py DEVICE

The forked process is refused the device that it inherits, opens its own, and ends as any process
does. The status is 0 where all that is so.
"""

import os
import sys
import threading
import time

from fala import Device, DeviceError

TEXTS = [f"good film {number}" for number in range(40)]


def child(folder, inherited, expected):
    try:
        inherited.predict_proba(TEXTS)
    except DeviceError as error:
        assert "forked" in str(error), error
    else:
        sys.exit("the inherited device answers")
    inherited.close()
    with Device.open(folder) as own:
        assert (own.predict_proba(TEXTS) == expected).all()
        own.learn(["bad plot"], ["0"])


def main(folder):
    device = Device.open(folder)
    expected = device.predict_proba(TEXTS)
    busy = threading.Event()

    def predict():
        while not busy.wait(0.001):
            device.predict_proba(TEXTS)

    thread = threading.Thread(target=predict)
    thread.start()
    time.sleep(0.05)
    forked = os.fork()
    if not forked:
        child(folder, device, expected)
        sys.exit(0)
    _, status = os.waitpid(forked, 0)
    busy.set()
    thread.join()
    assert status == 0, status
    assert "bad plot" in [row.example for row in device.examples()]
    device.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
