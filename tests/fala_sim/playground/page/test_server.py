"""The page's server: access, responses, and errors of the command."""

import re
import socket
import struct
import sys
import time
from importlib import resources
from urllib.request import urlopen

import pytest
from starlette.testclient import TestClient

from fala.base.errors import install_hint
from fala_sim.playground.page.command import command
from fala_sim.playground.page.guard import HEADERS, LARGEST_BODY
from fala_sim.playground.page.server import make_app
from program import Program
from visits import opened, served

pytestmark = pytest.mark.slow


TOKEN, PORT = "a-token-of-the-tests", 8123
ORIGIN = f"http://127.0.0.1:{PORT}"
PROGRAM = Program(command, "fala demo")
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    visit = opened(tmp_path_factory.mktemp("app"))
    yield TestClient(make_app(visit, token=TOKEN, port=PORT), base_url=ORIGIN)
    visit.close()


def test_the_page_has_all_its_files_and_requests_no_others(client):
    static = resources.files("fala_sim.playground.page") / "static"
    files = {f"/{file.name}": file.read_text("utf-8") for file in static.iterdir()}
    files["/"] = files.pop("/index.html")
    page = files["/"]
    used = re.findall(r'(?:src|href)="([^"]+)"', page)
    imported = [name for text in files.values() for name in re.findall(r'from "\./([^"]+)"', text)]
    assert set(files) == {"/", *(f"/{name}" for name in [*used, *imported])}
    for path, text in files.items():
        response = client.get(path)
        assert (response.status_code, response.text) == (200, text)
        assert set(re.findall(r"\w+://[\w.]+", text)) <= {"http://www.w3.org"}  # SVG's own name
    assert not re.search(r"\sstyle=|\son\w+=|<style|<script[^>]*>[^<]", page)
    assert sum(map(len, files.values())) < 40_000


@pytest.mark.parametrize("path", ["/", "/api/state", "/nothing", "/api/nothing"])
def test_every_response_has_the_security_headers(client, path):
    headers = client.get(path).headers
    assert {name: headers[name] for name in HEADERS} == HEADERS
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "server" not in headers
    assert "set-cookie" not in headers


def test_the_api_needs_the_token(client):
    wrong = "", TOKEN, "Bearer ", f"Bearer {TOKEN[:-1]}", f"Bearer {TOKEN} ", f"Basic {TOKEN}"
    for headers in ({}, *({"Authorization": each} for each in (*wrong, b"Bearer \xff\xe9"))):
        for response in (
            client.get("/api/state", headers=headers),
            client.post("/api/ask", headers=headers, json={"text": "a clown"}),
        ):
            assert (response.status_code, list(response.json())) == (403, ["error"])
    assert client.get(f"/api/state?token={TOKEN}").status_code == 403


def test_other_hosts_and_origins_are_rejected(client):
    for host in ("evil.example", f"evil.example:{PORT}", "127.0.0.1", f"127.0.0.1:{PORT + 1}", ""):
        for path in ("/", "/api/state"):
            response = client.get(path, headers={**BEARER, "Host": host})
            assert response.status_code == 421
            assert "127.0.0.1" in response.json()["error"]
    for origin in ("https://evil.example", "null", f"http://127.0.0.1:{PORT + 1}"):
        response = client.get("/api/state", headers={**BEARER, "Origin": origin})
        assert response.status_code == 403
    assert client.get("/api/state", headers={**BEARER, "Origin": ORIGIN}).status_code == 200
    assert client.options("/api/ask", headers={"Origin": ORIGIN}).status_code == 403


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b"{", "application/json", 400),
        (b"\xff", "application/json", 400),
        (b"[" * 9000, "application/json", 400),
        (b"[]", "application/json", 409),
        (b"{}", "application/json", 409),
        (b'{"text": 3}', "application/json", 409),
        (b'{"text": "a clown"}', "text/plain", 415),
        (b'{"text": "a clown"}', "application/json; charset=utf-8", 200),
        (b" " * (LARGEST_BODY + 1), "application/json", 413),
    ],
)
def test_wrong_bodies_are_rejected(client, content, kind, status):
    headers = {**BEARER, "Content-Type": kind}
    response = client.post("/api/ask", headers=headers, content=content)
    assert response.status_code == status
    assert ("error" in response.json()) == (status != 200)
    endless = client.post("/api/ask", headers=headers, content=iter([b"{}"]))
    assert endless.status_code == 411


def test_mistakes_are_json_errors(client):
    for action, body, message in (
        ("label", {"post": 0, "label": 2}, "0 or 1"),
        ("label", {"post": -1, "label": 1}, "0 or 1"),
        ("label", {"post": True, "label": 1}, "whole number"),
        ("watch", {"reader": 9}, "the reader must be"),
        ("ship", {}, "label a post first"),
        ("refine", {}, "no new model"),
        ("rollback", {}, "no previous model"),
        ("check", {"post": 100, "label": 1}, "unseen posts"),
        ("ask", {"text": "x" * 2001}, "a text must have"),
        ("ask", {"text": " "}, "a text must have"),
    ):
        response = client.post(f"/api/{action}", headers=BEARER, json=body)
        assert response.status_code == 409
        assert message in response.json()["error"]
    assert client.post("/api/nothing", headers=BEARER, json={}).status_code == 404
    assert client.get("/api/label", headers=BEARER).status_code == 405


def test_an_internal_error_is_a_response_and_is_logged(tmp_path, caplog):
    visit = opened(tmp_path)
    visit.close()  # its notes are closed
    client = TestClient(make_app(visit, token=TOKEN, port=PORT), base_url=ORIGIN)
    response = client.post("/api/label", headers=BEARER, json={"post": 0, "label": 1})
    assert response.status_code == 500
    assert "this failed (label)" in response.json()["error"]
    assert [record.message for record in caplog.records] == ["label failed"]


def test_a_newer_view_is_sent(client):
    view = client.get("/api/state", headers=BEARER).json()
    assert view["stage"] == "labelling"
    done = client.post("/api/label", headers=BEARER, json={"post": 0, "label": 1}).json()
    assert done["version"] > view["version"]
    newer = client.get(f"/api/state?after={view['version']}", headers=BEARER).json()
    assert newer["labelled"] == 1


def test_an_aborted_request_prints_nothing(tmp_path):
    with (
        (tmp_path / "errors").open("wb") as errors,
        served(tmp_path / "visit", errors=errors) as (_, address),
    ):
        host, token = re.fullmatch(r"http://([\d.:]+)/#token=(.+)", address).groups()
        for rest in (
            "Content-Length: 22\r\n\r\n", 'Content-Length: 22\r\n\r\n{"text": ',
            "Transfer-Encoding: chunked\r\n\r\nno chunk\r\n",
        ):  # fmt: skip
            with socket.create_connection(host.split(":")) as page:
                page.sendall(
                    f"POST /api/ask HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n"
                    f"Content-Type: application/json\r\n{rest}".encode()
                )
                time.sleep(0.3)  # it is read before the reset
                page.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with urlopen(address, timeout=30) as response:
            assert response.status == 200
    assert (tmp_path / "errors").read_text() == ""


def test_without_the_extra_the_error_names_it(monkeypatch):
    monkeypatch.delitem(sys.modules, "fala_sim.playground.page.server", raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert install_hint("demo") in PROGRAM.failed()


def test_another_folder_or_a_used_port_is_rejected(tmp_path):
    (tmp_path / "letter.txt").write_text("dear reader")
    with socket.create_server(("127.0.0.1", 0)) as used:
        for option, value, why in (
            ("--device-dir", tmp_path, "not a folder of this command"),
            ("--port", used.getsockname()[1], "cannot be opened"),
        ):
            assert why in PROGRAM.failed("--no-browser", option, value)
