"""A phone's app with a personal model that survives a new backbone: see docs/platforms.md.

python examples/mobile/src/main.py [FOLDER]
"""

from __future__ import annotations

import functools
import threading

import flet
from personal import FINE, POSTS, UNWELCOME, Personal, storage

import fala


class App:
    """The window: posts with the model's probability and buttons for the user's label."""

    def __init__(self, page: flet.Page) -> None:
        self.page = page
        self.personal = Personal(storage())
        self.end = threading.Event()
        page.title = "Your model"
        page.scroll = flet.ScrollMode.AUTO
        self.entry = flet.TextField(label="A post of your own", autofocus=True, on_submit=self.add)
        self.new = flet.Button("New backbone", on_click=self.replace)
        self.stop = flet.Button("Stop", on_click=self.request_stop, disabled=True)
        self.back = flet.Button("Roll back", on_click=self.roll_back)
        self.bar = flet.ProgressBar(value=0, visible=False)
        self.status = flet.Text()
        self.posts = flet.Column()
        page.add(
            self.entry, flet.Row([self.new, self.stop, self.back], wrap=True),
            self.bar, self.status, self.posts,
        )  # fmt: skip
        self.show("Label some posts; then let a new backbone come.")

    def show(self, message: str) -> None:
        """Redraw the window from the device's labels and predictions."""
        labels = self.personal.labels()
        texts = [*(text for text in labels if text not in POSTS), *POSTS]
        opinions = self.personal.unwelcome(texts)
        self.status.value = f"{self.personal.device.status().release}: {message}"
        self.posts.controls = [
            self.row(text, share, labels.get(text))
            for text, share in zip(texts, opinions, strict=True)
        ]
        self.page.update()

    def row(self, text: str, share: float, label: int | None) -> flet.Control:
        """A post with its probability and the user's label."""
        opinion = flet.Text(f"{share:.0%} unwelcome", weight=flet.FontWeight.BOLD)
        buttons = [
            flet.OutlinedButton(
                ("✓ " if label == value else "") + name,
                on_click=functools.partial(self.label, text, value),
            )
            for name, value in (("fine", FINE), ("unwelcome", UNWELCOME))
        ]
        return flet.Column([flet.Text(text), flet.Row([opinion, *buttons], wrap=True)], spacing=2)

    def add(self, _event: flet.Event[flet.TextField]) -> None:
        """Add the user's text as an unwelcome post."""
        text, self.entry.value = (self.entry.value or "").strip(), ""
        if text:
            self.label(text, UNWELCOME)

    def label(self, text: str, value: int, _event: object = None) -> None:
        """Learn one label, and show the changes."""
        self.personal.label(text, value)
        self.show(f"learned from {len(self.personal.labels())} posts")

    def replace(self, _event: object = None) -> None:
        """Start the replacement in a second thread; the window stays responsive."""
        self.end.clear()
        self.busy(True)
        self.page.run_thread(self.work)

    def work(self) -> None:
        """Replace the backbone; runs in a second thread, so it shows its errors itself."""
        try:
            report = self.personal.replace(self.progress)
            message = (
                f"{report.decision} model after {report.forward_passes} forward passes,"
                f" {report.seconds['total']:.1f} s"
            )
        except fala.CancelledError:
            message = "stopped; nothing changed"
        except fala.FalaError as error:
            message = str(error)
        self.busy(False)
        self.show(message)

    def progress(self, stage: str, done: int, total: int) -> bool:
        """Show the progress; returns False to stop the replacement."""
        self.bar.value = done / total if total else None
        self.status.value = f"{stage} {done} of {total}"
        self.page.update()
        return not self.end.is_set()

    def busy(self, now: bool) -> None:
        """Disable the other buttons during a replacement."""
        self.new.disabled = self.back.disabled = self.bar.visible = now
        self.stop.disabled = not now
        self.page.update()

    def request_stop(self, _event: object = None) -> None:
        """Stop the replacement at its next step."""
        self.end.set()

    def roll_back(self, _event: object = None) -> None:
        """Go back to the earlier model, fitted to the newer labels, too."""
        try:
            self.personal.device.rollback()
            self.show("rolled back")
        except fala.FalaError as error:
            self.show(str(error))


if __name__ == "__main__":
    flet.run(App)
