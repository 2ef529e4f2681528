"""The walk of ``fala-replace``: simulates a vendor and the users' devices.

The vendor fits global heads on the public rows, and learns a bridge on their texts. Each user has a
real device in a temporary folder: it is created with the old release, learns the user's train rows,
is replaced within the budget, and is scored on the user's test rows; over a bridge once before any
forward pass, and once after the budget.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fala.bundle.reading import Bundle
from fala.bundle.writing import add_bridge, write_release
from fala.device import Device
from fala.errors import BundleMismatchError, DataError, counted
from fala.examples import unique_texts
from fala.files import temporary_folder
from fala.model.heads import Head, Vectors
from fala.model.links import Label, Rating, Tags
from fala.model.losses import Floats, label_probabilities
from fala.personal.budget import Budget
from fala.playground.paper import Recipe
from fala.release.bridge import fit_bridge
from fala.release.fitting import fit_head, kind_of
from fala.release.metrics import averaged, f1, scores
from fala.release.population.annotators import LEAST_ANNOTATORS, LEAST_ROWS, rows_by_name
from fala.release.population.learning import (
    annotated_rows,
    check_head,
    learn_prior,
    write_learned,
)
from fala.release.population.left_out import Show
from fala.release.user_rows import Rows
from fala.report import Report
from fala.solver.judge import f1_threshold
from fala.text.sparse_rows import SparseRows

#: Figures for labels, and for ratings.
FIGURES = ("auc", "f1", "accuracy", "cross_entropy", "rmse", "rank_correlation")
#: The last one only with the paper's recipe.
MODELS = ("old_personal", "new_global", "instant", "fala", "paper")

#: Texts that are encoded between two steps of progress.
CHUNK = 256


@dataclass(frozen=True)
class Side:
    """The old or the new release of a walk.

    Attributes:
        name: The backbone's name.
        release: The release's file.
        head: Its head.
        embeddings: Embeddings of all test texts, and of the public ones if needed, by text.
        has_head: Whether the bundle's own head is for these labels, and used.
        bridged: Whether it has a bridge from the old backbone.
        bridge: The bridge's origin, or why there is none, in words.
        prior: The same for its population prior.
    """

    name: str
    release: Path
    head: Head
    embeddings: Mapping[str, Vectors]
    has_head: bool
    bridged: bool = False
    bridge: str = ""
    prior: str = ""


def prepare(
    old: Bundle,
    new: Bundle,
    rows: Rows,
    users: Sequence[str],
    folder: Path,
    show: Show,
) -> tuple[Side, Side]:
    """Make two releases of two bundles, with a bridge from the old one in the new one.

    A bundle's head is used if it is for these labels. Else a head is fitted on the public rows, and
    a population prior with its scales is learned for it, if there are enough public annotators. The
    bundle's bridge from the old backbone is used; else one is learned on the public texts, never on
    a user's.

    Args:
        old: A backbone, or a release.
        new: The same.
        rows: The data.
        users: The simulated users.
        folder: Folder for a release that is not one of the two files.
        show: Shows progress.

    Raises:
        FalaError: A bundle or the rows cannot be used.
    """
    source = old.backbone_digest
    has_bridge, same_backbone = source in new.bridges(), source == new.backbone_digest
    public = [] if has_bridge or same_backbone else unique_texts(row.example for row in rows.public)
    before, after = (
        _side(bundle, rows, users, public, folder / name, show)
        for bundle, name in ((old, "old.fala"), (new, "new.fala"))
    )
    if has_bridge:
        return before, replace(after, bridged=True, bridge="the bundle's own")
    if same_backbone:
        return before, replace(after, bridge="none: both have the same backbone")
    vectors = [
        np.array([side.embeddings[text] for text in public]).reshape(len(public), -1)
        for side in (before, after)
    ]
    try:
        bridge = fit_bridge(source, *vectors)
    except DataError as error:
        return before, replace(after, bridge=f"none: {error}")
    origin = f"learned on {counted(len(public), 'public text')}"
    release = folder / "new.fala"
    add_bridge(release, Bundle.open(after.release), bridge, {"from": before.name, "text": origin})
    return before, replace(after, release=release, bridged=True, bridge=origin)


def run_user(
    user: str, rows: Rows, old: Side, new: Side, budget: Budget, recipe: Recipe | None = None
) -> dict[str, Any]:
    """One user's device, from the old release to the new.

    Args:
        user: The user's name.
        rows: The data.
        old: The old release.
        new: The new one.
        budget: The budget of the replacement, and of the paper's recipe.
        recipe: The paper's recipe from ``old`` to ``new``, to compare with.

    Returns:
        The figures of ``fala-replace --json`` for one user.
    """
    train, test = rows.users[user].train, rows.users[user].test
    examples = [row.example for row in test]
    old_inputs = old.head.inputs(examples, old.embeddings), old.head.words(examples)
    new_inputs = new.head.inputs(examples, new.embeddings), new.head.words(examples)
    truth = Truth(new.head, [row.label for row in test])
    figures: dict[str, dict[str, float | None] | None] = {"instant": None}
    with (
        temporary_folder() as folder,
        Device.create(folder / "device", old.release) as device,
    ):
        device.learn([row.example for row in train], [row.label for row in train])
        figures["old_personal"] = truth.scores_of(device, old_inputs)
        old_model = device.model
        if new.bridged or new.head.lexical is not None:
            first = device.replace(new.release, Budget(0))
            if first.instant is not None:  # word vectors encode all texts first
                figures["instant"] = truth.scores_of(device, new_inputs)
            more = Budget(budget.passes(new.bridged), budget.seconds)
            reports = [first, device.refine(more)]
        else:
            reports = [device.replace(new.release, budget)]
        figures["fala"] = truth.scores_of(device, new_inputs)
    figures["new_global"] = truth.scores(new.head.vendor_model().logits(*new_inputs))
    costs = _costs(reports)
    if recipe is not None:
        fit = recipe.fit(
            [row.example for row in train],
            [None if row.label is None else rows.labels.index(str(row.label)) for row in train],
            old_model,
            budget.passes(new.bridged),
        )
        figures["paper"] = truth.scores(fit.model.logits(new_inputs[0]))
        costs["paper"] = fit.cost
    public = {row.example for row in rows.public}
    overlap = sum(row.example in public for row in train)
    record = {"user": user, "documents": len(train), "public": overlap}
    return {**record, **costs, **_by_figure(figures)}


@dataclass(frozen=True)
class Truth:
    """The labels for scoring models.

    Attributes:
        head: A head with these labels.
        labels: n labels.
    """

    head: Head
    labels: Sequence[Label]

    def scores_of(
        self, device: Device, inputs: tuple[Vectors, SparseRows | None]
    ) -> dict[str, float | None]:
        """Score a device's model at its own thresholds, by n examples' inputs and words."""
        is_rating = isinstance(self.head.link, Rating)
        thresholds = None if is_rating else [*device.thresholds.values()]
        return self.scores(device.model.logits(*inputs), thresholds)

    def scores(
        self, logits: Vectors, thresholds: Sequence[float] | None = None
    ) -> dict[str, float | None]:
        """Score logits (n, C): F1 by a threshold of a logit, accuracy at probability 1/2.

        Args:
            logits: A model's logits.
            thresholds: A device's thresholds, one for each tag, or one for two labels; None for
                those that a device would choose, from the model's probabilities without labels.

        Returns:
            ``auc``, ``f1``, ``accuracy`` and ``cross_entropy`` (for tags, means over the tags); or
            ``rmse`` and ``rank_correlation``.
        """
        link, z = self.head.link, logits.astype(np.float64)
        shares = self.head.label_shares(self.labels)
        if isinstance(link, Rating):
            return {"rmse": None, "rank_correlation": None, **link.scores(shares, z)}
        if z.shape[1] > 1 and not isinstance(link, Tags):
            figures = scores(shares.argmax(axis=1), link.answers(z))
        else:
            if thresholds is None:
                thresholds = [f1_threshold(logit[:, None]) for logit in z.T]
            figures = averaged(map(_logit_scores, shares.T, z.T, thresholds))
        return {**figures, "cross_entropy": float(link.losses(shares, z).mean())}


def _logit_scores(share: Floats, z: Floats, threshold: float) -> dict[str, float | None]:
    """Score one logit (n,) of labels 0 and 1, (n,)."""
    truth = share.astype(np.int64)
    return {**scores(truth, label_probabilities(z[:, None])), "f1": f1(truth == 1, z > threshold)}


def mean(users: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The figures averaged over users, without undefined ones."""

    def average(values: Iterable[float | None]) -> float | None:
        defined = [value for value in values if value is not None]
        return float(np.mean(defined)) if defined else None

    instants = [user["instant"] for user in users if user["instant"] is not None]
    papers = [user["paper"] for user in users if "paper" in user]
    return {
        "documents": average(user["documents"] for user in users),
        "forward_passes": average(user["forward_passes"] for user in users),
        "instant": {"seconds": average(i["seconds"] for i in instants)} if instants else None,
        "seconds": {"total": average(user["seconds"]["total"] for user in users)},
        **{
            figure: {
                model: average(user[figure][model] for user in users) for model in users[0][figure]
            }
            for figure in FIGURES
            if figure in users[0]
        },
        **(
            {"paper": {cost: average(p[cost] for p in papers) for cost in papers[0]}}
            if papers
            else {}
        ),
    }


def _side(
    bundle: Bundle,
    rows: Rows,
    users: Sequence[str],
    public: Sequence[str],
    release: Path,
    show: Show,
) -> Side:
    """Encode the needed texts, and write a release with a fitted head if the bundle has none."""
    name, head = bundle.manifest.name, bundle.head()
    has_head = head is not None and fits(head, rows)
    fitted_on = [] if has_head else [row.example for row in rows.public]
    tests = [row.example for user in users for row in rows.users[user].test]
    texts = list(dict.fromkeys([*public, *unique_texts(fitted_on), *unique_texts(tests)]))
    backbone = bundle.backbone()
    embeddings: dict[str, Vectors] = {}
    with show(f"{name}: texts", len(texts)) as bar:
        for start in range(0, len(texts), CHUNK):
            chunk = texts[start : start + CHUNK]
            embeddings.update(zip(chunk, backbone.encode(chunk), strict=True))
            bar.update(len(chunk))
    if has_head and head is not None:
        return Side(name, bundle.path, head, embeddings, has_head=True)
    labels = [row.label for row in rows.public if row.label is not None]
    head = fit_head(
        backbone, fitted_on, labels, label_names=rows.labels, embeddings=embeddings,
        **kind_of(rows.link),
    )  # fmt: skip
    write_release(release, bundle, head, {"head": f"fitted on {rows.source}"})
    prior = _add_prior(release, head, rows, embeddings, show)
    return Side(name, release, head, embeddings, has_head=False, prior=prior)


def fits(head: Head, rows: Rows) -> bool:
    """Whether a head is for the rows' task and labels; a rating's name does not matter."""
    names = head.labels if isinstance(rows.link, Rating) else rows.labels
    same = (head.task, head.labels) == (rows.task, names)
    return same and head.link.continues(rows.link, head.labels, names)


def _add_prior(
    release: Path, head: Head, rows: Rows, embeddings: Mapping[str, Vectors], show: Show
) -> str:
    """Learn a population prior, and write the release again with it; returns a description."""
    enough = len(rows_by_name([row.user for row in rows.public], LEAST_ROWS))
    if enough < LEAST_ANNOTATORS:
        return (
            f"none: {counted(enough, 'public annotator')} {'has' if enough == 1 else 'have'} "
            f"{LEAST_ROWS} rows or more, and it takes {LEAST_ANNOTATORS}"
        )
    try:
        bundle = Bundle.open(release)
        check_head(bundle, head)
        learned = learn_prior(annotated_rows(bundle, head, rows.public, embeddings, show), show)
    except (BundleMismatchError, DataError) as error:
        return f"none: {str(error).removeprefix(f'{release}: ')}"
    except ImportError:
        return "none: SciPy learns it, and is not installed (pip install scipy)"
    if learned.prior is None:
        return f"none: {learned.details['refused']}"
    details = {"text": f"learned on {rows.source}", **learned.details}
    write_learned(release, bundle, learned, details)
    return f"learned from {learned.details['annotators']} public annotators"


def _costs(reports: Sequence[Report]) -> dict[str, Any]:
    """The decision and costs of a replacement, from the reports of its stages."""
    first = reports[0]
    # A refinement without a fit has no decision.
    last = next((report for report in reversed(reports) if report.counts.fits), first)
    seconds: dict[str, float] = {}
    for report in reports:
        for stage, elapsed in report.seconds.items():
            seconds[stage] = seconds.get(stage, 0.0) + elapsed
    return {
        "forward_passes": sum(report.forward_passes for report in reports),
        "decision": last.decision,
        "reason": last.reason,
        "worse": reports[-1].worse,
        "stopped": last.stopped,
        "threshold": last.threshold,
        "instant": None if first.instant is None else asdict(first.instant),
        "seconds": seconds,
    }


def _by_figure(figures: Mapping[str, Mapping[str, float | None] | None]) -> dict[str, Any]:
    return {
        figure: {
            model: None if (scores := figures[model]) is None else scores[figure]
            for model in MODELS
            if model in figures
        }
        for figure in FIGURES
        if figure in (figures["fala"] or {})
    }
