"""The service under load: many users, an upgrade in the middle, and a server that is killed.

    python examples/service/load.py --old glove.fala --new minilm.fala --rows rows.jsonl
    python examples/service/load.py --users 20 --seconds 2

Some clients send requests at a rate, nine predictions to one label, for a few users most of the
time. In the middle all users get the new release. When half of them have it, the server is killed
(``kill -9``) and started again. The table has the seconds of requests before, during and after;
those that failed since no server was there are counted apart. At the end each device must have
each label that was acknowledged, and the new release. The command fails otherwise.
"""

import argparse
import contextlib
import http.client
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

import fala
import fala.testing
import fala_sim

TOKEN = "of the load test"
PATIENCE = 600.0  # seconds for the replacement


class Server:
    """The service, in a process of its own."""

    def __init__(self, folder, release):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.folder, self.release = folder, release
        self.start()

    def start(self):
        """Start it, and wait until it answers."""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", "--factory", "app:make_app", "--port", str(self.port),
             "--log-level", "warning", "--app-dir", str(Path(__file__).parent)],
            env={**os.environ, "FALA_FOLDER": str(self.folder), "FALA_RELEASE": str(self.release),
                 "FALA_TOKEN": TOKEN},
        )  # fmt: skip
        until = time.monotonic() + 60
        while self.send("GET", "/replace") is None:
            if time.monotonic() > until or self.process.poll() is not None:
                raise SystemExit("the server does not start")
            time.sleep(0.05)

    def send(self, method, path, body=None, client=None):
        """The answer to a request; None where no server is."""
        client = client or http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {"Authorization": f"Bearer {TOKEN}"} if path == "/replace" else {}
        try:
            client.request(method, path, json.dumps(body or {}), headers)
            response = client.getresponse()
            answer = json.loads(response.read())
        except (OSError, http.client.HTTPException):
            client.close()
            return None
        if response.status != 200:
            raise RuntimeError(f"{method} {path}: {response.status} {answer}")
        return answer

    def stop(self):
        """End it as an operator does."""
        self.process.terminate()
        self.process.wait(60)


class Clients:
    """Threads that send requests at a rate, and note what was acknowledged."""

    def __init__(self, server, users, texts, rate, count, seed):
        self.server, self.texts, self.seed = server, texts, seed
        self.names = [f"u{number}" for number in range(users)]
        self.weights = 1 / np.arange(1, users + 1)
        self.pause, self.phase, self.errors = count / rate, "", []
        self.seconds = {}  # of requests, by phase and kind
        self.acknowledged = {name: {} for name in self.names}
        self.threads = [threading.Thread(target=self.run, args=(at,)) for at in range(count)]

    def learn(self, draw, name, count, client=None):
        """Send labels of new texts; note them once they are acknowledged."""
        texts = [f"{draw.choice(self.texts)} {draw.getrandbits(48):x}" for _ in range(count)]
        labels = [draw.getrandbits(1) for _ in texts]
        body = {"texts": texts, "labels": labels}
        if self.server.send("PUT", f"/users/{name}/labels", body, client) is None:
            return False
        self.acknowledged[name].update(zip(texts, labels, strict=True))
        return True

    def run(self, number):
        """One client."""
        draw, phase = random.Random(self.seed + number), None
        client = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        following = time.monotonic() + draw.random() * self.pause
        try:
            while phase := self.phase:
                time.sleep(max(0.0, following - time.monotonic()))
                following = max(following + self.pause, time.monotonic() - self.pause)
                (name,) = draw.choices(self.names, self.weights)
                kind = "learn" if draw.random() < 0.1 else "predict"
                began = time.perf_counter()
                if kind == "learn":
                    done = self.learn(draw, name, 1, client)
                else:
                    body = {"texts": draw.choices(self.texts, k=3)}
                    done = self.server.send("POST", f"/users/{name}/predict", body, client)
                row = self.seconds.setdefault((phase, kind if done else "no server"), [])
                row.append(time.perf_counter() - began)
        except Exception as error:
            self.errors.append(repr(error))

    def fill(self, labels):
        """Every user's first labels, by all clients at once."""
        names = iter(self.names)

        def work(number):
            for name in names:
                self.learn(random.Random(f"{self.seed} {name}"), name, labels)

        threads = [threading.Thread(target=work, args=(at,)) for at in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def upgrade(server, release):
    """Replace for all; kill the server when half is done. The last state."""
    server.send("POST", "/replace", {"release": str(release)})
    killed, until = False, time.monotonic() + PATIENCE
    while time.monotonic() < until:
        progress = server.send("GET", "/replace")
        if progress["state"] in ("done", "failed"):
            return {"killed": killed, **progress}
        if not killed and 2 * progress.get("done", 0) >= progress.get("total", np.inf):
            server.process.kill()
            server.process.wait()
            began, killed = time.monotonic(), True
            server.start()
            print(f"killed, and back after {time.monotonic() - began:.1f} s", file=sys.stderr)
        time.sleep(0.05)
    raise SystemExit("the replacement does not end")


def check(folder, clients, backbone):
    """How many labels are lost, and how many devices do not have the release."""
    lost = other = 0
    for name, expected in clients.acknowledged.items():
        with fala.Device.open(folder / "users" / f"user-{name}") as device:
            stored = {row.example: row.label for row in device.examples()}
            lost += sum(stored.get(text) != label for text, label in expected.items())
            other += device.status().release != backbone
    return {"acknowledged": sum(map(len, clients.acknowledged.values())), "lost": lost,
            "other_release": other}  # fmt: skip


def main():
    """Run the load, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=1000)
    parser.add_argument("--labels", type=int, default=20, help="of each user at the beginning")
    parser.add_argument("--old", default=fala_sim.sample_release("glove"))
    parser.add_argument("--new", default=fala_sim.sample_release("bert"))
    parser.add_argument("--rows", type=Path, help="JSON lines with texts")
    parser.add_argument("--rate", type=float, default=50.0, help="requests a second")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=20.0, help="before, and after")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    texts = fala.testing.texts()
    if options.rows is not None:
        lines = options.rows.read_text(encoding="utf-8").splitlines()
        texts = [json.loads(line)["text"] for line in lines]
    with tempfile.TemporaryDirectory(prefix="fala-") as temporary:
        folder = Path(temporary)
        server = Server(folder, options.old)
        clients = Clients(server, options.users, texts, options.rate, options.clients, options.seed)
        with contextlib.ExitStack() as ending:
            ending.callback(server.stop)
            clients.fill(options.labels)
            print(f"{options.users} users have their first labels", file=sys.stderr)
            clients.phase = "before"
            for thread in clients.threads:
                thread.start()
            ending.callback(lambda: [thread.join() for thread in clients.threads])
            ending.callback(setattr, clients, "phase", "")
            time.sleep(options.seconds)
            clients.phase = "during"
            progress = upgrade(server, options.new)
            clients.phase = "after"
            time.sleep(options.seconds)
        backbone = fala.Bundle.open(options.new).manifest.title
        record = {"errors": clients.errors, **check(folder, clients, backbone)}
    milliseconds = {
        f"{phase}: {kind}": [len(row), *(1000 * np.quantile(row, [0.5, 0.99, 1])).round(1).tolist()]
        for (phase, kind), row in clients.seconds.items()
    }
    if options.json:
        print(json.dumps({**record, "replacement": progress, "milliseconds": milliseconds}))
    else:
        print(f"{'':20} requests   p50 ms   p99 ms  slowest")
        for name, figures in milliseconds.items():
            print(f"{name:20}" + "".join(f"{figure:9}" for figure in figures))
        print(json.dumps(record))
        print(json.dumps(progress))
    if record["errors"] or record["lost"] or record["other_release"] or progress["failed"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
