"""The rules of a trial, as in Android's A/B updates: what each event makes of it.

A release that was just installed is on trial until it has proved itself. A process counts a try on
the disk before it loads the release, and takes the try back once the release has predicted or
raised an error. A process that ends in between leaves its try, and too many consecutive tries are
the release's fault.

| event | meaning | the trial afterwards |
| --- | --- | --- |
| ``load`` | a process is about to load the release | one more try |
| ``answer`` | the release has passed its probes | no try |
| ``survive`` | an error was not the release's fault | one try less |
| ``predict`` | a number of predictions | that many more; ``over`` after ``PREDICTIONS`` |
| ``confirm`` | the app is content | ``over`` |

``over`` is a good end. The device falls back to the previous slot instead, without a further event,
if there are ``TRIES`` tries before a process loads the release, or if an error is its fault. The
functions here read no disk and change nothing; ``fala.slots.switching`` carries out what they say.
"""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from typing import Literal

from fala.base.errors import BundleError
from fala.store.settings import Trial

#: Consecutive tries that ended with their process before the device falls back. One or two may be
#: due to a flat battery or an impatient user; three are the release's fault.
TRIES = 3
#: Predictions before a trial ends well. If none of 100 failed, fewer than 3 in 100 fail at 95 %
#: confidence (the rule of three). They take a day or two of use, which leaves time to fall back.
PREDICTIONS = 100

Event = Literal["load", "answer", "survive", "predict", "confirm"]
Over = Literal["over"]


def after(trial: Trial, event: Event, number: int = 0) -> Trial | Over:
    """Return what an event makes of a trial, by the table above.

    Args:
        trial: The trial, which is not changed.
        event: The event.
        number: The number of predictions.
    """
    match event:
        case "load":
            return replace(trial, tries=trial.tries + 1)
        case "answer":
            return replace(trial, tries=0)
        case "survive":
            return replace(trial, tries=max(trial.tries - 1, 0))
        case "predict" if trial.predictions + number < PREDICTIONS:
            return replace(trial, predictions=trial.predictions + number)
        case _:
            return "over"


def is_fault(error: BaseException) -> bool:
    """Return whether an error is the fault of a release, and not a shortage elsewhere."""
    cause: BaseException | None = error
    while cause is not None:
        short = isinstance(cause, OSError) and not isinstance(cause, FileNotFoundError)
        if short or isinstance(cause, sqlite3.Error | MemoryError | ImportError):
            return False
        cause = cause.__cause__
    return isinstance(error, BundleError)
