"""Long steps show a bar on a terminal, and few lines in a log."""

import io
import sys
import time

import pytest

from fala.cli import progress_bars as module
from fala.cli.progress_bars import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """Make seconds pass only when a test says so."""
    now = [1_000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def steps(clock, seconds, count, label="embedding texts"):
    with progress(label, count) as bar:
        for _ in range(count):
            clock[0] += seconds
            bar.update(1)


def test_a_log_has_a_line_after_two_seconds_and_every_half_minute(clock, capsys):
    steps(clock, seconds=1, count=100)
    assert capsys.readouterr().err.splitlines() == [
        "embedding texts: 2%",
        "embedding texts: 32%",
        "embedding texts: 62%",
        "embedding texts: 92%",
    ]


def test_a_short_step_prints_nothing_in_a_log(clock, capsys):
    steps(clock, seconds=0.1, count=15)
    steps(clock, seconds=5, count=1)  # ends before the first line
    steps(clock, seconds=1, count=0)
    assert capsys.readouterr() == ("", "")


def test_a_step_without_updates_is_printed(monkeypatch, capsys):
    monkeypatch.setattr(module, "_FIRST", 0.01)
    with progress("tracing the graph"):
        time.sleep(0.3)
    assert capsys.readouterr().err == "tracing the graph ...\n"


def test_a_terminal_has_a_bar(monkeypatch):
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    with progress("calibrating", 4) as bar:
        bar.update(4)
    assert "calibrating" in shown.getvalue()
    assert "100%" in shown.getvalue()
