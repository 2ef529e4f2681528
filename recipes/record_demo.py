"""Record the demo's page as an animated picture: a real server, a real browser, real devices.

    python recipes/record_demo.py --out docs/images/demo.webp

Needs the extras demo and dev, and Chromium. An invented reader labels posts, the vendor ships a
release, the new backbone encodes posts, and the device rolls back. Waits are cut to
2.5 s and shown ``--speed`` times faster.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
from browser import open_browser  # type: ignore[import-not-found]  # in tests/support

IDLE = "document.body.dataset.busy === ''"
STAGE = "document.body.dataset.stage"
LONGEST = 2.5  # seconds that a picture is shown after a wait, at most


class Film:
    """Pictures of a page, each with the time until the next.

    Args:
        page: The tab.
        speed: Waits are shown this many times faster than real time.
    """

    def __init__(self, page: Any, speed: float) -> None:  # noqa: ANN401
        self._page, self._speed = page, speed
        self._pictures: list[Image.Image] = []
        self._times: list[float] = []

    def look(self, held: float = 0.0) -> None:
        """Take a picture, unless it equals the last one.

        Args:
            held: Fewest seconds to show it.
        """
        picture = Image.open(io.BytesIO(self._page.picture())).convert("RGB")
        if self._pictures and picture.tobytes() == self._pictures[-1].tobytes():
            self._times[-1] = max(self._times[-1], held)
            return
        self._pictures.append(picture)
        self._times.append(held)
        self._last = time.monotonic()

    def until(self, expression: str) -> None:
        """Take pictures until an expression is true in the page."""
        reached = False
        while not reached:
            reached = bool(self._page.evaluate(expression))
            before = len(self._pictures)
            start = self._last
            self.look()
            if len(self._pictures) > before:
                wait = (self._last - start) / self._speed
                self._times[before - 1] = max(self._times[before - 1], min(wait, LONGEST))

    def write(self, out: Path, quality: int) -> None:
        """Write the film."""
        out.parent.mkdir(parents=True, exist_ok=True)
        first, *rest = self._pictures
        first.save(
            out,
            save_all=True,
            append_images=rest,
            duration=[max(80, round(1000 * seconds)) for seconds in self._times],
            loop=0,
            quality=quality,
            method=6,
        )
        seconds = sum(max(0.08, held) for held in self._times)
        megabytes = out.stat().st_size / 1e6
        click.echo(f"{out}: {len(self._pictures)} pictures, {seconds:.0f} s, {megabytes:.2f} MB")


@click.command()
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), required=True)
@click.option("--width", default=960, show_default=True)
@click.option("--height", default=700, show_default=True)
@click.option("--speed", default=3.0, show_default=True, help="Times faster than real time.")
@click.option("--quality", default=60, show_default=True)
def main(out: Path, width: int, height: int, speed: float, quality: int) -> None:
    """Record a visit."""
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [sys.executable, "-m", "fala", "demo", "--no-browser", "--json",
             "--device-dir", f"{folder}/walk"],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            address = process.stdout.readline() if process.stdout else ""
            with open_browser(f"{folder}/profile") as page:
                page.look(width, height)
                page.send("Emulation.setScrollbarsHidden", hidden=True)
                page.go(json.loads(address)["url"])
                page.until(f"{STAGE} === 'labelling'", 300)
                film = Film(page, speed)
                _visit(page, film)
                film.write(out, quality)
        finally:
            process.terminate()
            process.wait()


def _visit(page: Any, film: Film) -> None:  # noqa: ANN401
    """The steps of the film."""

    def press(name: str) -> None:
        page.evaluate(f"document.getElementById('{name}').focus({{preventScroll: true}})")
        film.look(0.6)
        page.press("Enter")

    film.look(2.0)
    press("watch")
    film.until(f"{IDLE} && document.getElementById('labels').value === 180")
    film.look(1.5)
    press("ship")
    film.until(f"{STAGE} === 'shipped' && {IDLE}")
    film.look(2.5)
    press("differing")
    time.sleep(0.5)
    film.look(2.5)
    press("refine")
    film.until(f"{IDLE} && document.getElementById('passes').value >= 60")
    time.sleep(0.5)
    film.look(3.5)
    press("rollback")
    film.until(f"{STAGE} === 'rolled back'")
    time.sleep(0.5)
    film.look(3.0)


if __name__ == "__main__":
    main()
