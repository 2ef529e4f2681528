"""A headless Chromium, spoken to in its own protocol through a pipe: no port, no library."""

import base64
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

    def go(self, address):
        """Open an address, and wait until it is loaded."""
        loads = len(self.of("Page.loadEventFired"))
        self.send("Page.navigate", url=address)
        while len(self.of("Page.loadEventFired")) == loads:
            self.receive()

    def evaluate(self, expression):
        result = self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def until(self, expression, seconds=60):
        """Wait for an expression to be true in the page; its value."""
        end = time.monotonic() + seconds
        while not (value := self.evaluate(expression)):
            assert time.monotonic() < end, f"never: {expression}"
            time.sleep(0.03)
        return value

    def press(self, key, modifiers=0):
        """A key, as the keyboard sends it; with Ctrl, modifiers are 2."""
        number = {"Tab": 9, "Enter": 13, " ": 32}.get(key, ord(key[0]))
        given = {
            "key": key, "code": key, "windowsVirtualKeyCode": number, "modifiers": modifiers,
        }  # fmt: skip
        letters = {"Enter": "\r"}.get(key, key if len(key) == 1 else None)
        down = {"type": "keyDown", "text": letters} if letters else {"type": "rawKeyDown"}
        self.send("Input.dispatchKeyEvent", **down, **given)
        self.send("Input.dispatchKeyEvent", type="keyUp", **given)

    def look(self, width, height=800, dark=False):
        """See the page as wide as a device, in light or dark."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=width < 500)  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self, format="png"):
        """A screenshot's bytes."""
        return base64.b64decode(self.send("Page.captureScreenshot", format=format)["data"])

    def of(self, method):
        return [parameters for name, parameters in self.events if name == method]


@contextmanager
def open_browser(profile):
    """Start a browser with an empty tab; skip where there is none.

    Args:
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
            yield page
    finally:
        watchdog.cancel()
        process.terminate()
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
