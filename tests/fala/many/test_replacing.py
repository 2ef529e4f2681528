"""The personal models of many devices are carried over to a new release."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import fala
from bridged import TEXTS, write_releases
from device_command import done, failed, run
from devices import assert_close, embedded, sql, state
from fala import Budget, Bundle, Device, Releases, replace_all
from fala.base.files import FULL_DISK
from fala.many import replacing
from fala.model.heads import Head
from fala.slots.child import FORBIDDEN
from fala_export import write_release
from fala_sim.engine import open_engine, spread

USERS = ("ann", "bob", "cat", "dan")


@pytest.fixture(scope="module")
def learned_users(tmp_path_factory, releases, labels):
    """Make a folder of users on the old release, each of whom has most of the texts."""
    folder = tmp_path_factory.mktemp("users")
    shared = Releases(folder / "releases")
    for number, user in enumerate(USERS):
        with Device.create(folder / "users" / user, releases["old"], releases=shared) as device:
            chosen = slice(10 * number, 10 * number + 60)
            device.learn(TEXTS[chosen], labels[chosen])
    return folder


@pytest.fixture(scope="module")
def alone(tmp_path_factory, learned_users, releases):
    """Return the users' states after a replacement of each by itself."""
    folder = shutil.copytree(learned_users, tmp_path_factory.mktemp("reference") / "all")
    states = {}
    for user in USERS:
        with Device.open(folder / "users" / user) as device:
            device.replace(releases["mid"], Budget(20))
            states[user] = state(device)
    return states


@pytest.fixture
def users(tmp_path, learned_users):
    """Return the users' folders."""
    shutil.copytree(learned_users, tmp_path / "all")
    return [tmp_path / "all/users" / user for user in USERS]


@pytest.fixture
def shared(tmp_path, users):
    """Return the releases that the users share."""
    return Releases(tmp_path / "all/releases")


def active(folders):
    """Return the names of the active releases."""
    return [Device.examine(folder).active for folder in folders]


@pytest.mark.parametrize(
    "workers", [1, 2, "threads", pytest.param("ray", marks=pytest.mark.thorough)]
)
def test_every_user_gets_the_model_of_a_replacement_alone(
    users, shared, releases, alone, workers, monkeypatch
):
    if workers == 2:
        monkeypatch.delenv(FORBIDDEN)
    elif workers == "threads":
        workers = ThreadPoolExecutor(1).map
    elif workers == "ray":  # it comes with the extra [cluster]
        pytest.importorskip("ray")
        workers = spread(open_engine("ray", jobs=2, address=None))
    seen = []
    result = replace_all(
        iter(users), releases["mid"], releases=shared, budget=Budget(20),
        workers=workers, progress=lambda *args: seen.append(args),
    )  # fmt: skip
    assert (result.devices, result.replaced, result.failed) == (4, 4, 0)
    assert result.better + result.no_worse + result.worse + result.unknown == 4
    assert result.personal + result.calibrated + result.vendor == 4
    assert result.new == "mid" and result.seconds > 0 and result.not_reached == 0
    assert result.forward_passes + result.shared == 80
    assert seen == [("devices", count, 4) for count in range(5)]
    for folder in users:
        with Device.open(folder) as device:
            assert_close(state(device), alone[folder.name], 1e-5)
    # The release is on the disk once.
    assert [shared.devices(digest) for digest in shared] == [4, 4]


def test_a_text_of_several_users_is_encoded_once(users, shared, releases):
    result = replace_all(users, releases["mid"], releases=shared, budget=Budget(100), workers=1)
    texts = set().union(*(embedded(folder, releases["mid"]) for folder in users))
    assert len(texts) == 90
    # The four texts of a user that the release is checked on are among them.
    assert (result.forward_passes, result.shared) == (90, 4 * 60 - 90)


def test_a_second_call_does_nothing_and_a_larger_budget_goes_on(users, shared, releases):
    def replaced(passes):
        return replace_all(users, releases["mid"], budget=Budget(passes), workers=1)

    replace_all(users[:1], releases["mid"], releases=shared, budget=Budget(0), workers=1)
    assert replaced(0).replaced == 3
    assert replaced(0).already == 4
    result = replaced(15)
    assert (result.refined, result.forward_passes + result.shared) == (4, 60)
    assert replaced(15).already == 4


def test_a_device_that_went_back_or_would_be_worse_keeps_its_release(users, releases, tmp_path):
    with Device.open(users[0]) as device:
        device.replace(releases["mid"], Budget(0))
        device.rollback()
    result = replace_all(users[:2], releases["mid"], budget=Budget(0), workers=1)
    assert (result.went_back, result.replaced) == (1, 1)
    mid, worse = Bundle.open(releases["mid"]), tmp_path / "worse.fala"
    head = mid.head()
    write_release(worse, mid, Head(head.task, head.labels, -head.weight, -head.bias), {})
    result = replace_all(users[2:], worse, accept="better-than-old", workers=1)
    assert (result.refused, result.replaced, result.failed) == (2, 0, 0)
    assert active(users) == ["old", "mid", "old", "old"]


def test_a_user_that_fails_is_listed_and_does_not_stop_the_others(users, releases, tmp_path):
    ann, bob, cat, dan = users
    (bob / "store.sqlite3").write_bytes(b"no database" * 1_000)
    shutil.rmtree(cat)
    other = write_releases(tmp_path, labels=("a", "b", "c"), bridges=False)
    shutil.rmtree(dan)
    Device.create(dan, other["old"]).close()
    ended = run("replace-all", ann.parent, releases["mid"], "--budget", "0", "--jobs", "1")
    assert ended.exit_code == 1 and "Traceback" not in ended.stderr
    assert "devices: 1 replaced, 0 refined" in ended.stdout and active([ann]) == ["mid"]
    assert f"{dan}: BundleMismatchError: " in ended.stdout
    result = replace_all(users, releases["mid"], workers=1, budget=Budget(0))
    assert (result.already, result.failed) == (1, 3)
    errors = {failure.path: failure.error for failure in result.failures}
    assert errors == {
        str(bob): "DeviceError", str(cat): "DeviceError", str(dan): "BundleMismatchError",
    }  # fmt: skip
    told = json.dumps(result.to_dict())
    assert not any(text in told for text in TEXTS)


def test_each_user_may_have_a_key(tmp_path, releases):
    keys = {tmp_path / name: bytes([number]) * 32 for number, name in enumerate("abc")}
    for folder, key in keys.items():
        Device.create(folder, releases["old"], key=lambda key=key: key).close()
    right, wrong, none = keys
    found = {right: keys[right], wrong: keys[right]}
    result = replace_all([*keys], releases["mid"], key=lambda path: found[path], workers=2)
    assert result.replaced == 1
    assert {failure.path: failure.error for failure in result.failures} == {
        str(wrong): "DeviceError", str(none): "KeyError",
    }  # fmt: skip


def test_what_is_wrong_for_all_stops_at_once(users, releases, tmp_path, monkeypatch):
    with pytest.raises(fala.BundleError):
        replace_all(users, tmp_path / "none.fala", workers=2)
    copy = shutil.copy(releases["mid"], tmp_path / "copy.fala")
    with pytest.raises(fala.BundleDigestError, match="changed meanwhile"):
        replace_all(
            users, copy, workers=1,
            progress=lambda stage, done, total: done and shutil.copy(releases["new"], copy),
        )  # fmt: skip
    assert active(users) == ["mid", "old", "old", "old"]

    def full(*args, **kwargs):
        raise fala.DeviceError(f"the folder: no space left on device; {FULL_DISK}")

    monkeypatch.setattr(replacing, "_MOST_FULL", 2)
    monkeypatch.setattr(Device, "replace", full)
    with pytest.raises(fala.DeviceError, match=r"no space left.*3 of 4 devices are done; run this"):
        replace_all(users, releases["mid"], workers=1)


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"devices": "a folder"}, "devices must be a sequence"),
        ({"workers": 0}, "workers must be 1 or more"),
        ({"workers": "two"}, "workers must be a number of processes"),
        ({"key": b"0" * 32}, "key must be a function of a device's folder"),
        ({"releases": "folder"}, "releases must be fala.Releases"),
        ({"accept": "yes"}, "accept must be one of"),
    ],
)
def test_an_argument_that_cannot_be_used_is_an_error(releases, named, message):
    with pytest.raises(fala.DataError, match=message):
        replace_all(**{"devices": [], "release": releases["mid"], **named})


def test_no_further_device_is_begun_after_a_cancellation(users, releases):
    result = replace_all(
        users, releases["mid"], budget=Budget(0), workers=1,
        progress=lambda stage, done, total: done < 2,
    )  # fmt: skip
    assert (result.replaced, result.not_reached, result.failed) == (2, 2, 0)


def test_where_no_process_may_be_started_all_is_done_here(users, releases, monkeypatch):
    monkeypatch.setenv(FORBIDDEN, "1")
    monkeypatch.setattr(replacing, "in_processes", None)
    assert replace_all(users[:2], releases["mid"], budget=Budget(0), workers=2).replaced == 2


# Processes


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_command_that_was_ended_is_finished_by_the_next_call(users, shared, releases, how):
    program = "from fala.cli.device import command; command(prog_name='fala-device')"
    options = ("--jobs", "2", "--budget", "40")
    running = subprocess.Popen(
        [sys.executable, "-c", program, "replace-all", users[0].parent, releases["mid"], *options],
        env={name: value for name, value in os.environ.items() if name != FORBIDDEN},
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    while running.poll() is None and len(sql(users[0], "SELECT 1 FROM slots")) < 2:
        time.sleep(0.01)
    if how == signal.SIGINT:  # as a terminal does
        os.killpg(running.pid, how)
    else:
        running.kill()
    errors = running.communicate(timeout=30)[1]
    assert running.returncode == (130 if how == signal.SIGINT else -how)
    interrupted = "it continues where it stopped\nfala-device: interrupted\n"
    assert errors.endswith(interrupted) == (how == signal.SIGINT)
    result = replace_all(users, releases["mid"], releases=shared, workers=1)
    assert result.failed == 0 and result.replaced < 4 and active(users) == ["mid"] * 4
    for folder in users:
        assert sql(folder, "SELECT count(*) FROM examples WHERE label IS NOT NULL") == [(60,)]


# The command


def test_the_command_takes_a_folder_of_devices_or_a_list(users, releases, tmp_path):
    folder = users[0].parent
    nested = folder.parent
    options = ("--releases", nested / "releases", "--budget", "0", "--jobs", "1")
    first = tmp_path / "list"
    first.write_text(f"{users[0]}\n\n")
    assert done("replace-all", first, releases["mid"], *options)["replaced"] == 1
    result = done("replace-all", nested, releases["mid"], *options)
    assert (result["devices"], result["replaced"], result["already"]) == (4, 3, 1)
    assert "no device in it" in failed("replace-all", users[0], releases["mid"])
