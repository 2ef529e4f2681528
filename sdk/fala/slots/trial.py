"""The rules of a trial, as in Android's A/B updates: what each event makes of it.

A release that was just installed is on trial until it has proved itself. A process counts a try on
the disk before it loads the release, and takes the try back once the release has predicted or
raised an error. A process that ends in between leaves its try, and too many consecutive tries are
the release's fault.

| event | meaning | the trial afterwards |
| --- | --- | --- |
| ``load`` | a process is about to load the release | one more try; ``fall back`` after ``TRIES`` |
| ``answer`` | the release has passed its probes | no try |
| ``survive`` | an error was not the release's fault | one try less |
| ``fail`` | an error was the release's fault | ``fall back`` |
| ``predict`` | a number of predictions | that many more; ``over`` after ``PREDICTIONS`` |
| ``confirm`` | the app is content | ``over`` |
| ``resume`` | a rollback made its slot active, at a generation | a new trial |

``over`` is a good end. ``fall back`` makes the previous slot active. The functions here read no
disk and change nothing; ``fala.slots.switching`` carries out what they return.
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

Event = Literal["load", "answer", "survive", "fail", "predict", "confirm", "resume"]
End = Literal["over", "fall back"]


def after(trial: Trial, event: Event, number: int = 0) -> Trial | End:
    """Return what an event makes of a trial, by the table above.

    Args:
        trial: The trial, which is not changed.
        event: The event.
        number: The number of predictions, or the generation of a slot that is active again.
    """
    match event:
        case "load" if trial.tries < TRIES:
            return replace(trial, tries=trial.tries + 1)
        case "answer":
            return replace(trial, tries=0)
        case "survive":
            return replace(trial, tries=max(trial.tries - 1, 0))
        case "predict" if trial.predictions + number < PREDICTIONS:
            return replace(trial, predictions=trial.predictions + number)
        case "resume":
            return Trial(trial.slot, number)
        case "predict" | "confirm":
            return "over"
        case _:
            return "fall back"


def event_of(error: BaseException) -> Event:
    """Return what an error means for a trial: the release's fault, or a shortage elsewhere."""
    cause: BaseException | None = error
    while cause is not None:
        short = isinstance(cause, OSError) and not isinstance(cause, FileNotFoundError)
        if short or isinstance(cause, sqlite3.Error | MemoryError | ImportError):
            return "survive"
        cause = cause.__cause__
    return "fail" if isinstance(error, BundleError) else "survive"
