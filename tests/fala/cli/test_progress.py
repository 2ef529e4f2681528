"""Long steps show a bar on a terminal, and few lines in a log."""

import io
import sys
import threading

from fala.cli import progress_bars as module
from fala.cli.progress_bars import _Lines, progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Clock:
    """Stands in for the event that ends a step of 100 units, one of them a second."""

    def __init__(self, bar):
        self.bar = bar

    def wait(self, seconds):
        self.bar.update(int(seconds))
        return self.bar.pos >= self.bar.length


def test_a_log_has_a_line_after_two_seconds_and_every_half_minute(capsys):
    lines = _Lines("embedding texts", 100)
    lines._over = Clock(lines)
    lines._print()
    assert capsys.readouterr().err.splitlines() == [
        "embedding texts: 2%",
        "embedding texts: 32%",
        "embedding texts: 62%",
        "embedding texts: 92%",
    ]


def test_a_short_step_prints_nothing_in_a_log(capsys):
    with progress("embedding texts", 15) as bar:
        bar.update(15)
    assert capsys.readouterr() == ("", "")


def test_a_step_without_updates_is_printed(monkeypatch, capsys):
    shown, echo = threading.Event(), module.click.echo
    monkeypatch.setattr(module, "_FIRST", 0.01)
    monkeypatch.setattr(module.click, "echo", lambda *line, **to: (echo(*line, **to), shown.set()))
    with progress("tracing the graph"):
        shown.wait(60)
    assert capsys.readouterr().err == "tracing the graph ...\n"


def test_a_terminal_has_a_bar(monkeypatch):
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    with progress("calibrating", 4) as bar:
        bar.update(4)
    assert "calibrating" in shown.getvalue()
    assert "100%" in shown.getvalue()
