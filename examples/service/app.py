"""An HTTP service with a personal model for each of many users.

    pip install -e '.[demo]'
    FALA_FOLDER=data FALA_RELEASE=first.fala FALA_TOKEN=secret uvicorn --factory app:make_app

    PUT    /users/ann/labels   {"texts": ["..."], "labels": [1]}   the first makes the user
    POST   /users/ann/predict  {"texts": ["..."]}
    POST   /users/ann/rank     {"texts": ["..."]}
    POST   /users/ann/forget   {"texts": ["..."]}                  no trace of them is left
    GET    /users/ann
    DELETE /users/ann                                              nor of the user
    POST   /replace            {"release": "new.fala"}             with the token; for all users
    GET    /replace            how far it is

It knows nobody's password: put your own sign-in before it.
"""

import contextlib
import hmac
import json
import os
import re
import threading
from dataclasses import dataclass, field
from pathlib import Path

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.routing import Route

import fala

LARGEST_BODY = 1 << 20  # bytes
USER = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")  # one spelling on every file system, and no path


@dataclass
class Opened:
    """A user's device, how many requests use it now, and whether it is to be opened anew."""

    device: fala.Device | None = None
    requests: int = 0
    gone: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)


class Users:
    """A folder for each user. The devices used last stay open, at most ``most`` idle ones."""

    def __init__(self, folder, first_release, most=64):
        self.folder, self.most = Path(folder), most
        (self.folder / "users").mkdir(parents=True, exist_ok=True)
        self.releases = fala.Releases(self.folder / "releases")
        self.lock, self.opened = threading.Lock(), dict[str, Opened]()
        self.state_file = self.folder / "state.json"
        self.thread, self.closing = threading.Thread(), False
        self.progress = {"state": "none"}
        if self.state_file.exists():
            state = json.loads(self.state_file.read_text(encoding="utf-8"))
            self.release = state["release"]
        else:
            state = {"carried": True}
            self.write_state(self.releases.add(first_release).digest, **state)
        self.load()
        if not state["carried"]:  # the server was killed meanwhile
            self.carry()

    def write_state(self, release, carried):
        """Which release new users get, and whether all others have it."""
        self.release, part = release, self.state_file.with_suffix(".part")
        part.write_text(json.dumps({"release": release, "carried": carried}), encoding="utf-8")
        part.replace(self.state_file)

    def load(self):
        """Keep all releases' backbones loaded, so that no request waits for one."""
        self.loaded = [self.releases.backbone(digest) for digest in self.releases]

    @contextlib.contextmanager
    def device(self, name, *, create=False):
        """A user's device, which stays open at least as long as it is used here."""
        path = self.path(name)
        with self.lock:
            opened = self.opened.pop(name, None) or Opened()
            self.opened[name] = opened  # the last is the one used last
            opened.requests += 1
        try:
            with opened.lock:
                if opened.device is None:
                    opened.device = self.open(path, create)
            yield opened.device
        except (fala.DeviceError, HTTPException):  # erased or repaired by another process
            opened.gone = True
            raise
        finally:
            with self.lock:
                opened.requests -= 1
                if opened.gone and self.opened.get(name) is opened:
                    del self.opened[name]
                idle = [each for each, one in self.opened.items() if not one.requests]
                closed = [self.opened.pop(each) for each in idle[: max(0, len(idle) - self.most)]]
                if opened.gone and not opened.requests:
                    closed.append(opened)
            for each in closed:
                if each.device is not None:
                    each.device.close()

    def open(self, path, create):
        """Open a device, or create it."""
        if path.exists():
            return fala.Device.open(path, releases=self.releases)
        if not create:
            raise HTTPException(404, "there is no such user")
        release = self.releases[self.release].path
        return fala.Device.create(path, release, releases=self.releases)

    def path(self, name):
        """A user's folder."""
        if not USER.fullmatch(name):
            raise HTTPException(400, f"a user's name is {USER.pattern}")
        return self.folder / "users" / f"user-{name}"

    def erase(self, name):
        """Delete a user without a trace."""
        with self.device(name) as device:
            device.erase()
            with self.lock:  # another request may have noticed it already
                if name in self.opened:
                    self.opened[name].gone = True

    def replace(self, release):
        """Begin to carry all users over to a release."""
        bundle = self.releases.add(release)
        with self.lock:
            if self.thread.is_alive():
                raise HTTPException(409, "a replacement is under way")
            self.write_state(bundle.digest, carried=False)
            self.carry()

    def carry(self):
        """Carry all users over in a thread; the work is done in other processes."""

        def progress(stage, done, total):
            self.progress = {"state": "running", "done": done, "total": total}
            return not self.closing

        def run():
            try:
                self.load()
                result = fala.replace_all(
                    sorted((self.folder / "users").iterdir()), self.releases[self.release].path,
                    releases=self.releases, progress=progress,
                )  # fmt: skip
                self.progress = {"state": "done", **result.to_dict()}
                if not result.failed and not result.not_reached:
                    self.write_state(self.release, carried=True)
            except fala.FalaError as error:
                self.progress = {"state": "failed", "error": str(error)}

        self.progress = {"state": "running"}
        self.thread = threading.Thread(target=run)
        self.thread.start()

    def close(self):
        """Let a replacement end with the devices that it has begun; close the devices."""
        self.closing = True
        if self.thread.is_alive():
            self.thread.join()
        for opened in self.opened.values():
            if opened.device is not None:
                opened.device.close()


def texts_of(body):
    """The texts of a request."""
    texts = body.get("texts")
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise fala.DataError("texts is a list of texts")
    return texts


def learn(device, body):
    """Labels are on the disk when this returns."""
    return device.learn(texts_of(body), body.get("labels")).to_dict()


def predict(device, body):
    """A label for each text."""
    return {"labels": device.predict(texts_of(body)).tolist()}


def rank(device, body):
    """The texts with their probabilities, the best first."""
    return {"ranked": device.rank(texts_of(body))}


def forget(device, body):
    """Delete texts, without a trace."""
    texts = set(texts_of(body))
    return device.forget(row.id for row in device.examples() if row.example in texts).to_dict()


def describe(device, body):
    """The state of a user's device."""
    return device.status().to_dict()


async def body_of(request):
    """The JSON object of a request."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > LARGEST_BODY:
            raise HTTPException(413, f"at most {LARGEST_BODY} bytes")
    with contextlib.suppress(ValueError, RecursionError):
        if isinstance(parsed := json.loads(body or b"{}"), dict):
            return parsed
    raise HTTPException(400, "send a JSON object")


async def refuse(request, error):
    """A request that cannot be answered."""
    return JSONResponse({"error": error.detail}, error.status_code)


def make_app(folder=None, release=None, token=None):
    """The application; its arguments are environment variables by default."""
    token = token or os.environ["FALA_TOKEN"]
    users = Users(folder or os.environ["FALA_FOLDER"], release or os.environ["FALA_RELEASE"])

    def of_user(action, *, create=False):
        def call(request, body):
            with users.device(request.path_params["user"], create=create) as device:
                return action(device, body)

        return call

    def erase(request, body):
        users.erase(request.path_params["user"])
        return {"erased": True}

    def replace(request, body):
        given = request.headers.get("authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
            raise HTTPException(403, "only with the token")
        users.replace(body.get("release"))
        return users.progress

    def route(path, method, call):
        async def endpoint(request):
            body = await body_of(request)
            try:
                return JSONResponse(await run_in_threadpool(call, request, body))
            except fala.FalaError as error:
                status = 400 if isinstance(error, fala.DataError) else 409
                return JSONResponse({"error": str(error)}, status)

        return Route(path, endpoint, methods=[method])

    @contextlib.asynccontextmanager
    async def lifespan(app):
        yield
        await run_in_threadpool(users.close)

    user = "/users/{user}"
    return Starlette(
        routes=[
            route(f"{user}/labels", "PUT", of_user(learn, create=True)),
            route(f"{user}/predict", "POST", of_user(predict)),
            route(f"{user}/rank", "POST", of_user(rank)),
            route(f"{user}/forget", "POST", of_user(forget)),
            route(user, "GET", of_user(describe)),
            route(user, "DELETE", erase),
            route("/replace", "POST", replace),
            route("/replace", "GET", lambda request, body: users.progress),
        ],
        lifespan=lifespan,
        exception_handlers={HTTPException: refuse},
    )
