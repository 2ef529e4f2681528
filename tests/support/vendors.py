"""A vendor with a repository of signed updates, and servers that are honest or not."""

import shutil
import time
from contextlib import suppress
from datetime import datetime, timedelta, timezone

from fala_export.updates import publishing
from fala_export.updates.keys import Keyring
from fala_export.updates.publishing import Threshold
from fala_export.updates.repository import Repository

ONE = Threshold(1, 1)


class Vendor:
    """A repository with its keys.

    Attributes:
        folder: What is served.
        keys: The folder of the private keys.
        days: Added to every clock that the vendor reads.
    """

    def __init__(self, folder, days=0):
        self.folder, self.keys, self.days = folder / "repository", folder / "keys", days
        if not self.folder.exists():
            keys = Keyring([], self.keys)
            publishing.begin(self.folder, keys, self.now, thresholds={"root": ONE})

    def copy(self, folder):
        return Vendor(shutil.copytree(self.folder.parent, folder))

    @property
    def now(self):
        return datetime.now(timezone.utc) + timedelta(days=self.days)

    @property
    def ring(self):
        return Keyring([self.keys], self.keys)

    @property
    def root(self):
        """The trusted root that an app pins."""
        return self.folder / "metadata" / "1.root.json"

    def publish(self, bundle, **options):
        return publishing.publish(self.folder, bundle, self.ring, self.now, **options)

    def renew(self, *roles):
        return publishing.renew(self.folder, self.ring, self.now, roles)

    def rotate(self, role, keys=None, **options):
        return publishing.rotate_key(self.folder, role, keys or self.ring, self.now, **options)

    def delegate(self, product):
        return publishing.delegate(self.folder, product, self.ring, self.now)

    def publish_as(self, product, told):
        """Say something else of the release that is published last."""
        state = self.state()
        (target,) = state["targets"].signed.targets.values()
        target.unrecognized_fields["custom"] = told
        state.write(state.sign(["targets"], self.ring, self.now))

    def state(self):
        return Repository.load(self.folder)

    def files(self):
        """What a server gives, by path."""
        return {
            path.relative_to(self.folder).as_posix(): path.read_bytes()
            for path in self.folder.rglob("*.*")
            if path.is_file() and path.name != ".lock"
        }


def target_in(files):
    """The path of the one release."""
    (path,) = [path for path in files if path.startswith("targets/")]
    return path


class Sender:
    """Answers that do not end, or hardly begin; counts what it could send."""

    def __init__(self):
        self.sent = 0

    def endless(self, handler):
        """Content without a length, and without an end."""
        self._say(handler, b"HTTP/1.1 200 OK\r\n\r\n")
        with suppress(OSError):
            while True:
                self._say(handler, b" " * 65_536)

    def endless_headers(self, handler):
        """Answers that promise another answer, without an end."""
        with suppress(OSError):
            while True:
                self._say(handler, b"HTTP/1.1 100 Continue\r\n\r\n" * 1_000)

    def endless_marks(self, handler):
        """Content of one byte a piece, each with as much about it as HTTP allows."""
        self._say(handler, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        with suppress(OSError):
            while True:
                self._say(handler, b"1;" + b"x" * 60_000 + b"\r\n \r\n")

    def trickling(self, handler):
        """A byte of content now and then."""
        self._say(handler, b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        self._drip(handler, b"{" * 200)

    def trickling_headers(self, handler):
        """A byte of the first header now and then."""
        self._say(handler, b"HTTP/1.1 200 OK\r\n")
        self._drip(handler, b"X-Header: " + b"a" * 190)

    def silent(self, handler):
        """Nothing, on a connection that stays."""
        time.sleep(1.5)

    def _drip(self, handler, data):
        with suppress(OSError):
            for position in range(len(data)):
                self._say(handler, data[position : position + 1])
                time.sleep(0.02)

    def _say(self, handler, data):
        handler.wfile.write(data)
        handler.wfile.flush()
        self.sent += len(data)
