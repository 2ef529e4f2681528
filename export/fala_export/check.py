"""Held-out annotators, played as devices that replace an earlier release by a new one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import stdtrit

from fala import Budget, Bundle, DataError, ExportError
from fala.playground.walk import Side, run_user
from fala.release import Columns, load_rows, unique_texts, write_again
from fala_export.embedding import Embedder
from fala_export.progress import progress
from fala_export.settings import CheckSettings
from fala_export.writing import writing

#: AUC below the new release as shipped that counts as worse.
WORSE = 0.005
_DIGITS = 4


def play(
    earlier: Path,
    release: Path,
    data: Path,
    columns: Columns,
    settings: CheckSettings,
    embedder: Embedder,
) -> dict[str, Any]:
    """Play the devices of held-out annotators, as ``fala-replace`` does.

    Each learns an annotator's train rows with the earlier release, replaces it, and is scored on
    the test rows.

    Args:
        earlier: The release that devices have.
        release: The one that replaces it, as it would be shipped.
        data: The rows.
        columns: The names of their columns.
        settings: How many devices, and their budget.
        embedder: Embeds the test rows' texts.

    Returns:
        The verdict, as a manifest notes it.

    Raises:
        DataError: The rows name no held-out annotators.
        ExportError: A release has no head for the rows.
    """
    rows = load_rows(data, columns)
    users = list(rows.users)[: settings.users]
    texts = unique_texts(row.example for user in users for row in rows.users[user].test)
    old, new = Bundle.open(earlier), Bundle.open(release)

    def side(bundle: Bundle) -> Side:
        head, name = bundle.head(), bundle.manifest.name
        if head is None or (head.task, head.labels) != (rows.task, rows.labels):
            raise ExportError(
                f"{bundle.path}: has no head of the labels {', '.join(rows.labels)}, so that its "
                "devices cannot be played"
            )
        vectors = embedder.embed(
            bundle.backbone(), bundle.backbone_digest, texts, f"embedding test texts with {name}"
        )
        embeddings = dict(zip(texts, vectors, strict=True))
        bridged = old.backbone_digest in bundle.bridges()
        return Side(name, Path(bundle.path), head, embeddings, has_head=True, bridged=bridged)

    before, after = side(old), side(new)
    results = []
    with progress("playing devices", len(users)) as bar:
        for user in users:
            results.append(run_user(user, rows, before, after, Budget(settings.budget)))
            bar.update(1)
    return {"from": old.manifest.name, **verdict(results)}


def verdict(users: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What a walk's figures say of a new release.

    Args:
        users: As of ``run_user``.

    Returns:
        ``devices``, of whose test rows some have two labels; their mean ``auc`` with the old
        personal model, with the new release as shipped, and with the new personal model; the mean
        ``gain`` of the last over the one before, with Student's 95 % ``interval`` over annotators
        (None of fewer than two); and the share who are ``worse``, by more than ``WORSE``.

    Raises:
        DataError: There is no such device.
    """
    scored = [user["auc"] for user in users if user["auc"]["fala"] is not None]
    if not scored:
        raise DataError("no held-out annotator has test rows of two labels, so nothing is checked")
    gains = np.array([one["fala"] - one["new_global"] for one in scored])
    interval = None
    if len(gains) > 1:
        half = stdtrit(len(gains) - 1, 0.975) * gains.std(ddof=1) / np.sqrt(len(gains))
        interval = [_rounded(gains.mean() - half), _rounded(gains.mean() + half)]
    models = ("old_personal", "new_global", "fala")
    return {
        "devices": len(scored),
        "auc": {
            model: _rounded(sum(one[model] for one in scored) / len(scored)) for model in models
        },
        "gain": _rounded(gains.mean()),
        "interval": interval,
        "worse": _rounded((gains < -WORSE).mean()),
    }


def demand(figures: Mapping[str, Any], settings: CheckSettings) -> None:
    """Hold a verdict against what the recipe demands.

    Raises:
        ExportError: It is below that.
    """
    least, most = settings.minimum_gain, settings.maximum_worse
    if least is not None and figures["gain"] < least:
        raise ExportError(
            f"[check] demands minimum_gain = {least:g}, and {figures['devices']} held-out "
            f"annotators gain {figures['gain']:+.4f} of AUC over the new release as shipped"
        )
    if most is not None and figures["worse"] > most:
        raise ExportError(
            f"[check] demands maximum_worse = {most:g}, and {figures['worse']:.0%} of "
            f"{figures['devices']} held-out annotators lose more than {WORSE} of AUC"
        )


def note(release: Path, figures: Mapping[str, Any], out: Path) -> None:
    """Write a release again with the verdict in its manifest.

    Raises:
        ExportError: It cannot be written.
    """
    with writing(out):
        write_again(out, Bundle.open(release), {"check": dict(figures)})


def _rounded(value: float) -> float:
    return round(float(value), _DIGITS)
