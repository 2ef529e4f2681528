"""Check a release on held-out annotators, simulated as devices that replace an earlier release."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from fala import Budget, Bundle, DataError
from fala.base.errors import counted
from fala.base.examples import unique_texts
from fala.cli import progress
from fala.model.links import LABELS, Link
from fala_export.base.errors import ExportError
from fala_export.embedding import Embedder
from fala_export.people.interval import defined, four_digits, interval, margin_of
from fala_export.people.simulate import Side, fits, mean, misfit, run_user
from fala_export.recipe.record import TrainingRecord
from fala_export.recipe.settings import CheckSettings
from fala_export.rows.table import Rows

#: The most simulated users, unless more are requested.
MOST_DEVICES = 200
#: Loss of AUC, or of RMSE as a share of the range, above which a device counts as worse.
WORSE = 0.005
#: Figures of a verdict, by the kind of label of the head.
_FIGURES = {
    "labels": ("error_rate", "negative_flips", "cross_entropy", "auc"),
    "tags": ("auc",),
    "rating": ("rmse", "rank_correlation"),
}
# Number of all rows below which starting further processes would take longer.
_LITTLE = 1 << 22


def play_devices(
    earlier: Path,
    release: Path,
    rows: Rows,
    settings: CheckSettings,
    embedder: Embedder,
) -> dict[str, Any]:
    """Simulate the devices of held-out annotators, as ``fala-replace`` does.

    Each device learns an annotator's train rows with the earlier release, replaces it, and is
    scored on the test rows. If there are more annotators than the settings allow, some are drawn.
    They are simulated in processes on all cores.

    Args:
        earlier: The release that devices have.
        release: The release that replaces it, as it would be shipped.
        rows: The rows.
        settings: The largest number of devices, and their budget.
        embedder: The embedder of the test rows' texts.

    Returns:
        The verdict, for the manifest. It has no figures of the old personal model if the earlier
        release was fitted to all rows of a file without splits, because these may include the test
        rows.

    Raises:
        DataError: No annotator has test rows with two labels.
        ExportError: A release has no head for the rows.
    """
    old, new = Bundle.open(earlier), Bundle.open(release)
    count, rows = len(rows.users), rows.drawn_users(settings.users or MOST_DEVICES)
    if len(rows.users) < count:
        drawn = f"{len(rows.users):,} of {counted(count, 'held-out annotator')}"
        click.echo(f"simulating the devices of {drawn}, drawn at random", err=True)
    texts = unique_texts(text for user in rows.users.values() for text in user.test.examples)

    def side(bundle: Bundle) -> Side:
        head, name = bundle.head(), bundle.manifest.title
        if head is None or not fits(head, rows):
            reason = misfit(bundle, rows) or f"{bundle.path}: has no head"
            raise ExportError(f"{reason}; the release cannot be checked on simulated devices")
        vectors = embedder.embed(
            bundle.backbone(), bundle.backbone_digest, texts, f"embedding test texts with {name}"
        )
        embeddings = dict(zip(texts, vectors, strict=True))
        bridged = old.backbone_digest in bundle.bridges()
        return Side(name, Path(bundle.path), head, embeddings, has_head=True, bridged=bridged)

    before, after, budget = side(old), side(new), Budget(settings.budget)
    calls = [
        (user, rows.of_users([user]), _of_user(before, user, rows), _of_user(after, user, rows))
        for user in rows.users
    ]
    results = []
    played = sum(map(len, rows.users.values()))
    many = played * new.manifest.dimension > _LITTLE
    with progress("simulating devices", len(calls)) as bar:
        for result in _results(calls, budget, cores=None if many else 1):
            results.append(result)
            bar.update(1)
    if TrainingRecord.of(old).every_row:  # The test rows may be among these rows.
        for result in results:
            for figure in _FIGURES[after.head.link.kind]:
                result[figure]["old_personal"] = None
            if "negative_flips" in result:  # Only labels that exclude one another have flips.
                result["negative_flips"] = dict.fromkeys(result["negative_flips"])
    return {"from": old.manifest.title, "of": count, **verdict(results, after.head.link)}


def _results(
    calls: Sequence[tuple[str, Rows, Side, Side]], budget: Budget, cores: int | None
) -> Iterator[dict[str, Any]]:
    """Simulate devices in turn, or in processes on all cores, because fits hold Python's lock."""
    if cores == 1:
        yield from (run_user(*call, budget) for call in calls)
        return
    from joblib import Parallel, cpu_count, delayed

    parallel = Parallel(cores or cpu_count(), return_as="generator")
    yield from parallel(delayed(run_user)(*call, budget) for call in calls)


def _of_user(side: Side, user: str, rows: Rows) -> Side:
    """Return a release with the embeddings of one user's test rows."""
    texts = rows.users[user].test.texts()
    return replace(side, embeddings={text: side.embeddings[text] for text in texts})


def verdict(users: Sequence[Mapping[str, Any]], link: Link = LABELS) -> dict[str, Any]:
    """Summarize a new release's figures over simulated users.

    Args:
        users: The results of ``run_user``.
        link: The link of the release's head.

    Returns:
        A dictionary: ``devices``, the number of devices with test rows of two labels; the means of
        ``error_rate`` in percent, ``negative_flips`` (percentage of decisions that the old personal
        model gets right and the model gets wrong; None for the old model), ``cross_entropy`` and
        ``auc`` (for tags only ``auc``, for ratings ``rmse`` and ``rank_correlation``), each with
        the old personal model, with the new model alone, and with the new personal model before any
        forward pass (if available) and after its forward passes; the mean ``gain`` of the last over
        the new model alone, in AUC or as a fall of RMSE (``metric``), with Student's 95 %
        ``interval`` over annotators (None for fewer than three); ``margins``, half of that interval
        for every figure; and the share of devices that are ``worse`` by more than ``WORSE``.

    Raises:
        DataError: No device has test rows of two labels.
    """
    metric, sign = ("rmse", -1) if link.kind == "rating" else ("auc", 1)
    scored = [user for user in users if user[metric]["fala"] is not None]
    if not scored:
        raise DataError(
            "no held-out annotator has test rows with two labels, so nothing can be checked; "
            "remove [check], or add rows"
        )
    gains = sign * np.array([user[metric]["fala"] - user[metric]["new_global"] for user in scored])
    bounds = interval(gains)
    means, figures = mean(scored), _FIGURES[link.kind]
    return {
        "devices": len(scored),
        **{
            name: {model: four_digits(value) for model, value in means[name].items()}
            for name in figures
        },
        "margins": {
            name: {model: four_digits(_margin(scored, name, model)) for model in means[name]}
            for name in figures
        },
        "metric": metric,
        "gain": four_digits(gains.mean()),
        "interval": None if bounds is None else [*map(four_digits, bounds)],
        "worse": four_digits((gains < -WORSE * (link.high - link.low)).mean()),
    }


def _margin(users: Sequence[Mapping[str, Any]], figure: str, model: str) -> float | None:
    return margin_of(defined(user[figure][model] for user in users if user[figure]))


def check_gain_limits(figures: Mapping[str, Any], settings: CheckSettings) -> None:
    """Check that a verdict is within the recipe's limits.

    Raises:
        ExportError: The verdict is outside the limits.
    """
    minimum_gain, maximum_worse = settings.minimum_gain, settings.maximum_worse
    if minimum_gain is not None and figures["gain"] < minimum_gain:
        raise ExportError(
            f"[check] requires minimum_gain = {minimum_gain:g}, but {figures['devices']} "
            f"held-out annotators gain {figures['gain']:+.4f} of {figures['metric']} over the "
            "new model alone"
        )
    if maximum_worse is not None and figures["worse"] > maximum_worse:
        raise ExportError(
            f"[check] requires maximum_worse = {maximum_worse:g}, but {figures['worse']:.0%} of "
            f"{figures['devices']} held-out annotators lose more than {WORSE} of "
            f"{figures['metric']}"
        )
