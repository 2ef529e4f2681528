"""The phone's app, without a window and in a real one."""

import importlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import fala
from checkout import ROOT

SOURCE = ROOT / "examples" / "mobile" / "src"


@pytest.fixture(scope="module")
def personal():
    sys.path.insert(0, str(SOURCE))
    yield importlib.import_module("personal")
    sys.path.remove(str(SOURCE))
    del sys.modules["personal"]


def test_a_personal_model_survives_a_new_backbone(personal, tmp_path):
    app = personal.Personal(tmp_path / "app")
    for post in personal.POSTS[:4]:
        app.label(post, personal.UNWELCOME if "clown" in post else personal.FINE)
    app.label(personal.POSTS[0], personal.UNWELCOME)
    assert app.labels()[personal.POSTS[0]] == personal.UNWELCOME
    stages = []
    with pytest.raises(fala.CancelledError):
        app.replace(lambda *step: stages.append(step) or False)
    assert app.device.status().release == "glove"
    assert app.replace(lambda *step: stages.append(step) or True).new == "bert"
    assert len(stages) > 2
    assert all(0 < share < 1 for share in app.unwelcome(list(personal.POSTS)))
    app.device.rollback()
    app.device.close()
    again = personal.Personal(tmp_path / "app")
    assert (again.device.status().release, len(again.labels())) == ("glove", 4)


def test_the_page_has_the_versions_of_the_build():
    build = (SOURCE.parent / "pyproject.toml").read_text(encoding="utf-8")
    pinned = dict(re.findall(r'"([a-z]+)==([0-9.]+)"', build))
    (row,) = re.findall(
        r"^\| Android, iOS: (flet .*)",
        (ROOT / "docs/platforms.md").read_text("utf-8"),
        re.MULTILINE,
    )
    assert pinned.keys() == {"flet", "numpy", "onnxruntime", "tokenizers"}
    assert all(re.search(rf"\b{re.escape(version)}\b", row) for version in pinned.values())


def missing():
    """The missing requirement of a window, or None."""
    for name in ("Xvfb", "xdotool"):
        if shutil.which(name) is None:
            return f"{name} is not installed"
    client = importlib.util.find_spec("flet_desktop")
    if importlib.util.find_spec("flet") is None or client is None:
        return "flet and its desktop client are not installed"
    if not list(Path(client.origin).with_name("app").glob("flet-linux-*")):
        return "this version of flet fetches its desktop client when it starts"
    return None


@pytest.fixture
def window(tmp_path):
    """The app on a display: a function that sends keys, the device's folder, the process."""
    if why := missing():
        pytest.skip(why)
    read_end, write_end = os.pipe()
    display = subprocess.Popen(
        ["Xvfb", "-displayfd", str(write_end), "-screen", "0", "700x800x24", "-nolisten", "tcp"],
        pass_fds=[write_end],
        stderr=subprocess.DEVNULL,
    )
    os.close(write_end)
    with os.fdopen(read_end) as number:
        name = f":{number.readline().strip()}"
    environment = {
        **os.environ, "DISPLAY": name, "HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path),
        "LIBGL_ALWAYS_SOFTWARE": "1", "FLET_APP_STORAGE_DATA": str(tmp_path / "app"),
    }  # fmt: skip

    def keys(*arguments):
        done = subprocess.run(["xdotool", *arguments], env=environment, capture_output=True)
        return done.returncode == 0

    app = subprocess.Popen(
        [sys.executable, SOURCE / "main.py"], env=environment, start_new_session=True
    )
    try:
        wait(lambda: keys("search", "--name", "^Your model$", "windowfocus"), app)
        time.sleep(8)  # until the first frame, when the field has the focus
        yield keys, tmp_path / "app" / "device", app
    finally:
        os.killpg(app.pid, signal.SIGKILL)  # with flet's client, which survives a SIGTERM
        app.wait(30)
        display.terminate()
        display.wait(30)


def wait(until, app, seconds=90):
    end = time.monotonic() + seconds
    while not until():
        assert app.poll() is None, "the app ended"
        assert time.monotonic() < end
        time.sleep(0.5)


def state_of(folder):
    """The state of the app's device: its backbone, and its examples."""
    with fala.Device.open(folder) as device:
        return device.status().release, [item.example for item in device.examples()]


def test_keys_in_a_real_window_reach_the_device(window):
    keys, folder, app = window
    keys("mousemove", "160", "34", "click", "1")
    keys("type", "--delay", "30", "quite a clown")
    keys("key", "Return")
    wait(lambda: state_of(folder)[1] == ["quite a clown"], app)
    press(keys, 1)  # New backbone
    wait(lambda: state_of(folder)[0] == "bert", app)
    time.sleep(2)  # until the window says so
    press(keys, 2)  # Stop cannot be pressed now: Roll back
    wait(lambda: state_of(folder)[0] == "glove", app)


def press(keys, tabs):
    """Press a button at a number of tabs from the text field."""
    keys("mousemove", "160", "34", "click", "1")
    keys("key", *["Tab"] * tabs)
    keys("key", "space")
