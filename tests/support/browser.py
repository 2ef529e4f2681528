"""A headless Chromium, spoken to in its own protocol through a pipe: no port, no library."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")

#: Chromium reads commands from descriptor 3 and writes answers to 4.
_START = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.dup2(int(sys.argv[2]), 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Page:
    """A tab: commands by name, and every event that came since it was opened."""

    def __init__(self, commands, answers):
        self.commands, self.answers = commands, answers
        self.events = []
        self.session = None
        self.last = 0

    def send(self, method, **parameters):
        self.last += 1
        message = {"id": self.last, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        self.commands.write(json.dumps(message).encode() + b"\0")
        self.commands.flush()
        while True:
            answer = self.receive()
            if answer.get("id") == self.last:
                assert "error" not in answer, answer
                return answer["result"]

    def receive(self):
        letters = bytearray()
        while (letter := self.answers.read(1)) != b"\0":
            assert letter, "the browser ended"
            letters += letter
        message = json.loads(letters)
        if "method" in message:
            self.events.append((message["method"], message["params"]))
        return message

    def wait_for(self, method, seconds=120):
        end = time.monotonic() + seconds
        while all(name != method for name, _ in self.events):
            assert time.monotonic() < end, f"no {method}"
            self.receive()

    def evaluate(self, expression):
        result = self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def of(self, method):
        return [parameters for name, parameters in self.events if name == method]


@contextmanager
def open_page(path, profile):
    """Open a file with the network off; skip where there is no browser.

    Args:
        path: The page.
        profile: An empty folder for the browser's own files.
    """
    browser = next(filter(None, map(shutil.which, NAMES)), None)
    if browser is None:
        pytest.skip(f"no browser here: none of {', '.join(NAMES)} is installed")
    command = [
        browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
        "--no-first-run", "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank",
    ]  # fmt: skip
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    # Away from 3 and 4, which are the browser's.
    given = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (theirs_in, theirs_out)]
    process = subprocess.Popen(
        [sys.executable, "-c", _START, *map(str, given), *command],
        pass_fds=given,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    # Whatever waits for a browser that hangs then finds the pipe closed.
    watchdog = threading.Timer(300, process.kill)
    watchdog.start()
    for descriptor in (theirs_in, theirs_out, *given):
        os.close(descriptor)
    try:
        with os.fdopen(ours_out, "wb") as commands, os.fdopen(ours_in, "rb") as answers:
            page = Page(commands, answers)
            targets = page.send("Target.getTargets")["targetInfos"]
            target = next(found["targetId"] for found in targets if found["type"] == "page")
            attached = page.send("Target.attachToTarget", targetId=target, flatten=True)
            page.session = attached["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                page.send(f"{domain}.enable")
            page.send("Network.emulateNetworkConditions", offline=True, latency=0,
                      downloadThroughput=0, uploadThroughput=0)  # fmt: skip
            page.send("Page.navigate", url=path.resolve().as_uri())
            page.wait_for("Page.loadEventFired")
            yield page
    finally:
        watchdog.cancel()
        process.terminate()
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
