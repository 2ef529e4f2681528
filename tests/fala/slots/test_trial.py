"""The rules of a trial say what each event makes of it."""

import sqlite3

import pytest

from fala.base.errors import BundleError, BundleFormatError
from fala.slots.trial import PREDICTIONS, TRIES, after, event_of
from fala.store.settings import Trial

TRIAL = Trial("b", 7, tries=1, predictions=40)


@pytest.mark.parametrize(
    ("event", "number", "expected"),
    [
        ("load", 0, Trial("b", 7, 2, 40)),
        ("answer", 0, Trial("b", 7, 0, 40)),
        ("survive", 0, Trial("b", 7, 0, 40)),
        ("fail", 0, "fall back"),
        ("predict", PREDICTIONS - 41, Trial("b", 7, 1, PREDICTIONS - 1)),
        ("predict", PREDICTIONS - 40, "over"),
        ("confirm", 0, "over"),
        ("resume", 9, Trial("b", 9)),
    ],
)
def test_each_event_has_one_outcome(event, number, expected):
    assert after(TRIAL, event, number) == expected


def test_tries_end_after_three_and_never_below_none():
    trial = Trial("b", 7)
    assert after(trial, "survive") == trial
    for _ in range(TRIES):
        trial = after(trial, "load")
    assert trial.tries == TRIES and after(trial, "load") == "fall back"


def caused(error, cause):
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "event"),
    [
        (BundleFormatError("x"), "fail"),
        (caused(BundleError("x"), FileNotFoundError()), "fail"),
        (caused(BundleError("x"), OSError()), "survive"),
        (caused(BundleError("x"), caused(ValueError(), MemoryError())), "survive"),
        (caused(BundleError("x"), sqlite3.OperationalError()), "survive"),
        (caused(BundleError("x"), ImportError()), "survive"),
        (KeyboardInterrupt(), "survive"),
    ],
)
def test_only_errors_of_the_release_are_its_fault(error, event):
    assert event_of(error) == event
