"""The example of a service keeps its users through an upgrade, threads, restarts and erasures."""

import importlib.util
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from starlette.testclient import TestClient

from checkout import ROOT
from fala_sim import sample_release

pytestmark = pytest.mark.slow

SERVICE = ROOT / "examples" / "service"
TOKEN = {"Authorization": "Bearer of the test"}
RUDE, KIND = "you absolute clown of a neighbour", "the match was a lovely one"


@pytest.fixture(scope="module")
def service():
    spec = importlib.util.spec_from_file_location("service", SERVICE / "app.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its data class looks its types up
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def started(service, tmp_path):
    """Start the service on a folder, as often as wanted."""

    @contextmanager
    def start():
        app = service.make_app(tmp_path, sample_release("glove"), "of the test")
        with TestClient(app) as client:
            yield client

    return start


def learn(client, user, *texts):
    labels = [int(text.startswith(RUDE)) for text in texts]
    done = client.put(f"/users/{user}/labels", json={"texts": texts, "labels": labels})
    assert done.status_code == 200, done.text


def wait(client, each=lambda: None):
    """Wait for the end of a replacement."""
    until = time.monotonic() + 60
    while (progress := client.get("/replace").json())["state"] == "running":
        assert time.monotonic() < until
        each()
    return progress


def state(client, user):
    return client.get(f"/users/{user}").json()


def test_all_users_get_a_new_release_while_they_are_served(started):
    users, answers = ["ann", "bob", "eve"], []
    with started() as client:
        for user in users:
            learn(client, user, RUDE, f"{KIND}, said {user}")
        release = {"release": str(sample_release("bert"))}
        assert client.post("/replace", json=release).status_code == 403
        assert client.post("/replace", json=release, headers=TOKEN).status_code == 200
        assert client.post("/replace", json=release, headers=TOKEN).status_code == 409

        def serve():
            learn(client, "ann", f"{RUDE} {len(answers)}")
            answers.append(client.post("/users/bob/predict", json={"texts": [RUDE]}))

        progress = wait(client, serve)
        assert (progress["state"], progress["replaced"], progress["failed"]) == ("done", 3, 0)
        assert len(answers) > 3 and {answer.status_code for answer in answers} == {200}
        assert {state(client, user)["release"] for user in users} == {"bert"}
        assert state(client, "ann")["labelled"] == 2 + len(answers)
        ranked = client.post("/users/ann/rank", json={"texts": [KIND, RUDE]}).json()["ranked"]
        assert [text for text, _ in ranked] == [RUDE, KIND]
    with started() as client:  # nothing is left to do, and new users get the new release
        assert client.get("/replace").json() == {"state": "none"}
        learn(client, "new", RUDE)
        assert state(client, "new")["release"] == "bert"


def test_a_replacement_that_was_killed_goes_on_at_the_next_start(started, service, tmp_path):
    with started() as client:
        learn(client, "ann", RUDE, KIND)
    users = service.Users(tmp_path, None)
    users.write_state(users.releases.add(sample_release("bert")).digest, carried=False)
    users.close()
    with started() as client:
        assert wait(client)["replaced"] == 1
        told = state(client, "ann")
        assert (told["release"], told["examples"], told["labelled"]) == ("bert", 2, 2)
        assert told["on_trial"] and told["fell_back"] is None
    assert json.loads((tmp_path / "state.json").read_text())["carried"]


def test_the_first_user_may_come_after_a_new_release(started):
    with started() as client:
        client.post("/replace", json={"release": str(sample_release("bert"))}, headers=TOKEN)
        assert wait(client)["state"] == "done"
        learn(client, "ann", RUDE)
        assert state(client, "ann")["release"] == "bert"
        done = client.post("/replace", json={"release": "missing.fala"}, headers=TOKEN)
        assert done.status_code == 409 and "missing.fala" in done.json()["error"]


def test_texts_and_users_are_deleted_without_a_trace(started, tmp_path):
    def traces(text):
        files = [file for file in tmp_path.rglob("*") if file.is_file()]
        return [file.name for file in files if text.encode() in file.read_bytes()]

    with started() as client:
        learn(client, "ann", RUDE, KIND)
        learn(client, "bob", f"{RUDE} and bob")
        assert traces(KIND) and traces("and bob")
        forgotten = client.post("/users/ann/forget", json={"texts": [KIND]})
        assert forgotten.json() == {"count": 1, "overwritten": True}
        assert not traces(KIND) and state(client, "ann")["examples"] == 1
        assert client.delete("/users/bob").status_code == 200
        assert not traces("and bob") and client.get("/users/bob").status_code == 404
        learn(client, "bob", KIND)  # another one of this name
        assert state(client, "bob")["examples"] == 1


def test_threads_share_a_few_open_devices(service, tmp_path):
    users = service.Users(tmp_path, sample_release("glove"), most=1)
    names = [f"u{number}" for number in range(4)]

    def work(number):
        with users.device(names[number % 4], create=True) as device:
            device.remember([f"text {number}"])
            return device.predict([RUDE]).shape

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(work, range(40))) == {(1,)}
    assert len(users.opened) == 1
    for name in names:
        with users.device(name) as device:
            assert len(list(device.examples())) == 10
    users.close()


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/users/nobody", "", 404),
        ("GET", "/users/..", "", 404),
        ("GET", "/users/%2e%2e%2fusers", "", 404),
        ("DELETE", "/users/Ann", "", 400),
        ("PUT", "/users/a%00b/labels", '{"texts": ["a"], "labels": [1]}', 400),
        ("PUT", "/users/ann/labels", '{"texts": ["my secret"], "labels": ["rude"]}', 400),
        ("PUT", "/users/ann/labels", '{"texts": "my secret", "labels": [1]}', 400),
        ("PUT", "/users/ann/labels", "[" * 100_000, 400),
        ("PUT", "/users/ann/labels", " " * 2_000_000, 413),
        ("PATCH", "/users/ann", "", 405),
    ],
)
def test_what_cannot_be_done_is_refused(shared, method, path, body, status):
    done = shared.request(method, path, content=body)
    assert done.status_code == status
    assert "my secret" not in done.text


@pytest.fixture(scope="module")
def shared(service, tmp_path_factory):
    app = service.make_app(tmp_path_factory.mktemp("users"), sample_release("glove"), "of the test")
    with TestClient(app) as client:
        yield client


@pytest.mark.thorough
def test_a_server_under_load_that_is_killed_loses_nothing():
    command = [sys.executable, SERVICE / "load.py", "--users", "6", "--seconds", "1", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["acknowledged"] >= 120 and record["lost"] == record["other_release"] == 0
