"""The simulation of ``fala-replace``: a vendor and the users' devices.

The vendor fits heads on the public rows, and learns a bridge on their texts. Each user is
simulated as a device; see ``fala_export.people.simulate``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fala.base.errors import DataError, counted
from fala.base.examples import unique_texts
from fala.bundle.reading import Bundle
from fala.cli import progress
from fala.model.heads import Head, Vectors
from fala_export.bundle.writing import add_bridge, write_again, write_release
from fala_export.fit.annotators import learn_scales
from fala_export.fit.bridge import fit_bridge
from fala_export.fit.heads import HeadTrainingSet, fit_joint_head
from fala_export.people.draw import few_annotators, rows_of_head
from fala_export.people.interval import interval
from fala_export.people.simulate import Side, fits
from fala_export.rows.table import Rows

#: Number of texts that are encoded between two steps of progress.
CHUNK = 256


def prepare_sides(
    old: Bundle, new: Bundle, rows: Rows, users: Sequence[str], folder: Path
) -> tuple[Side, Side]:
    """Make two releases from two bundles, with a bridge from the old one in the new one.

    A bundle's head is used if it is for these labels. Otherwise a head is fitted on the public
    rows, and prior variances are chosen for it if there are enough public annotators. The bundle's
    bridge from the old backbone is used; otherwise one is learned on the public texts, never on a
    user's.

    Args:
        old: The old backbone, or a release with it.
        new: The new backbone, or a release with it.
        rows: The data.
        users: The simulated users.
        folder: Folder for a release that is not one of the two files.

    Raises:
        FalaError: A bundle or the rows cannot be used.
    """
    source = old.backbone_digest
    has_bridge, same_backbone = source in new.bridges(), source == new.backbone_digest
    fitted = rows_of_head(rows.public)
    public = [] if has_bridge or same_backbone else fitted.texts()
    before, after = (
        _side(bundle, rows, fitted, users, public, folder / name)
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


def _side(
    bundle: Bundle,
    rows: Rows,
    fitted: Rows,
    users: Sequence[str],
    public: Sequence[str],
    release: Path,
) -> Side:
    """Encode the needed texts, and write a release with a fitted head if the bundle has none."""
    name, head = bundle.manifest.title, bundle.head()
    has_head = head is not None and fits(head, rows)
    tests = unique_texts(row.example for user in users for row in rows.users[user].test)
    texts = list(dict.fromkeys([*public, *([] if has_head else fitted.texts()), *tests]))
    backbone = bundle.backbone()
    embeddings: dict[str, Vectors] = {}
    with progress(f"{name}: texts", len(texts)) as bar:
        for start in range(0, len(texts), CHUNK):
            chunk = texts[start : start + CHUNK]
            embeddings.update(zip(chunk, backbone.encode(chunk), strict=True))
            bar.update(len(chunk))
    if has_head and head is not None:
        return Side(name, bundle.path, head, embeddings, has_head=True)
    labels = [row.label for row in fitted if row.label is not None]
    public_rows = HeadTrainingSet.of(
        backbone, fitted.examples.tolist(), labels, label_names=rows.labels, embeddings=embeddings,
        link=rows.link,
    )  # fmt: skip
    head, joint = fit_joint_head(public_rows)
    # The penalties are also used for the heads that leave documents out.
    details = {"head": f"fitted on {rows.source}", "training": {"words": joint.details}}
    write_release(release, bundle, head, details)
    scales = _add_scales(release, head, fitted, embeddings)
    return Side(name, release, head, embeddings, has_head=False, scales=scales)


def _add_scales(release: Path, head: Head, rows: Rows, embeddings: Mapping[str, Vectors]) -> str:
    """Learn prior variances, and write the release again with them; return a description."""
    if reason := few_annotators(rows):
        return f"the defaults, because {reason}"
    bundle = Bundle.open(release)
    try:
        scales, origin = learn_scales(bundle, head, rows, lambda _: embeddings)
    except DataError as error:
        return f"the defaults, because {error}"
    if origin is None:
        return "the defaults"
    write_again(release, bundle, {"scales": scales, "scales_from": origin})
    return f"chosen on {origin['annotators']} public annotators"


def changes(users: Sequence[Mapping[str, Any]], figure: str, model: str) -> list[float]:
    """Return FaLA's figure minus another model's, for each user with both.

    Args:
        users: Results of ``run_user``.
        figure: Name of the figure.
        model: Name of the other model.
    """
    pairs = ((user[figure]["fala"], user[figure][model]) for user in users)
    return [new - old for new, old in pairs if new is not None and old is not None]


def conclusion(users: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Compare FaLA with the new model alone and with the old personal model.

    Args:
        users: Results of ``run_user``.

    Returns:
        ``figure``, ``"error_rate"`` or ``"rmse"``, both of which are better if lower; its mean
        ``fala`` over the users; and for ``new_global`` and ``old_personal`` its mean ``value``, the
        mean ``difference`` of FaLA from it with Student's 95 % ``interval`` over the users (None
        for fewer than three users), and the ``verdict``: ``"better"`` or ``"worse"`` if the
        interval does not contain 0, else ``"inconclusive"``.
    """
    figure = next(figure for figure in ("error_rate", "rmse") if figure in users[0])

    def value_of(model: str) -> float:
        return float(np.mean([user[figure][model] for user in users]))

    result: dict[str, Any] = {"figure": figure, "fala": value_of("fala")}
    for model in ("new_global", "old_personal"):
        gains = changes(users, figure, model)
        bounds = interval(gains)
        low, high = bounds or (-np.inf, np.inf)
        result[model] = {
            "value": value_of(model),
            "difference": float(np.mean(gains)),
            "interval": None if bounds is None else [*bounds],
            "verdict": "better" if high < 0 else "worse" if low > 0 else "inconclusive",
        }
    return result
