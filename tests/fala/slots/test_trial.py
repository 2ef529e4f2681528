"""The rules of a trial say what each event makes of it."""

import sqlite3

import pytest

from fala.base.errors import BundleError, BundleFormatError
from fala.slots.trial import PREDICTIONS, after, is_fault
from fala.store.settings import Trial

TRIAL = Trial("b", 7, tries=1, predictions=40)


@pytest.mark.parametrize(
    ("event", "number", "expected"),
    [
        ("load", 0, Trial("b", 7, 2, 40)),
        ("answer", 0, Trial("b", 7, 0, 40)),
        ("survive", 0, Trial("b", 7, 0, 40)),
        ("predict", PREDICTIONS - 41, Trial("b", 7, 1, PREDICTIONS - 1)),
        ("predict", PREDICTIONS - 40, "over"),
        ("confirm", 0, "over"),
    ],
)
def test_each_event_has_one_outcome(event, number, expected):
    assert after(TRIAL, event, number) == expected


def test_tries_are_never_below_none():
    assert after(Trial("b", 7), "survive") == Trial("b", 7)


def caused(error, cause):
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (BundleFormatError("x"), True),
        (caused(BundleError("x"), FileNotFoundError()), True),
        (caused(BundleError("x"), OSError()), False),
        (caused(BundleError("x"), caused(ValueError(), MemoryError())), False),
        (caused(BundleError("x"), sqlite3.OperationalError()), False),
        (caused(BundleError("x"), ImportError()), False),
        (KeyboardInterrupt(), False),
    ],
)
def test_only_errors_of_the_release_are_its_fault(error, fault):
    assert is_fault(error) == fault
