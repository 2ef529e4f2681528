"""The pictures of the documentation, drawn from records and from the built-in models.

    python recipes/pictures.py --out docs/images

Every picture is an SVG on a card: light or dark as the reader's system, whatever the page is. Its
text is large enough for a phone.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

import fala
import fala_sim
from fala.backbones.word_vectors import words
from fala.selection.representatives import select
from fala_sim import frame
from fala_sim.experiments.labels.plots import labels_figure as few_labels
from fala_sim.playground.sample import sample_rows
from fala_sim.report.groups import by_setting, parts
from fala_sim.report.plot import FAINT, INK, MUTED, Plot, draw, look
from fala_sim.report.statistics import mean_over_users
from figures import RESULTS

#: Fewest texts that contain a word of the last picture.
LEAST = 5

# A card's margin, and its colours: paper, text, less important text, lines.
_MARGIN = 8.0
_LIGHT = ("#fbfbfc", "#1b1f24", "#5b6470", "#d5d9de")
_DARK = ("#1f232a", "#e8eaed", "#a3abb6", "#3d434c")

_CARD_COLOURS = {INK: "currentColor", MUTED: "var(--muted)", FAINT: "var(--faint)"}

_SVG = "http://www.w3.org/2000/svg"


def card(plot: Plot) -> str:
    """A plot as an SVG file, on a background."""

    def colours(paper: str, ink: str, muted: str, faint: str) -> str:
        return f":root{{--paper:{paper};color:{ink};--muted:{muted};--faint:{faint}}}"

    root = ElementTree.fromstring(plot.svg())
    # The style sheet of the file gives way to the card's, the description to a label.
    for name in ("title", "metadata", "defs[1]"):
        root.remove(root.findall(f"{{{_SVG}}}{name}")[0])
    for attribute in ("width", "height"):
        del root.attrib[attribute]
    for element in root.iter():
        for key, value in element.attrib.items():
            for colour, of_card in _CARD_COLOURS.items():
                value = value.replace(colour, of_card)
            element.set(key, value)
    root.set("style", "stroke-linejoin: round; stroke-linecap: butt")
    root.set("role", "img")
    root.set("aria-label", plot.alt)
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    width, height = width + 2 * _MARGIN, height + 2 * _MARGIN
    root.set("viewBox", f"{-_MARGIN} {-_MARGIN} {width:g} {height:g}")
    style = ElementTree.Element("style")
    style.text = (
        f"{colours(*_LIGHT)}@media (prefers-color-scheme: dark){{{colours(*_DARK)}}}"
        "text{font-family:'DejaVu Sans',Verdana,sans-serif}"
    )
    rectangle = {"x": -_MARGIN, "y": -_MARGIN, "width": width, "height": height, "rx": 6}
    paper = ElementTree.Element("rect", {name: f"{value:g}" for name, value in rectangle.items()})
    paper.set("style", "fill: var(--paper)")
    root[:0] = [style, paper]
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def mean(runs: pd.DataFrame, figure: str) -> float:
    """A column's mean over people."""
    value = mean_over_users(runs, figure)
    if value is None:
        raise fala.DataError("the records have no such figure")
    return value.mean


def budgets(runs: pd.DataFrame) -> Plot:
    """AUC by budget of forward passes, over a bridge.

    Args:
        runs: FaLA by its budget.
    """
    lines: dict[str, list[tuple[float, float]]] = {}
    for setting, data_runs in by_setting(runs.assign(budget=runs["variant"].astype(int))):
        lines[setting.data] = [
            (budget, mean(group, "scores.auc")) for budget, group in parts(data_runs, "budget")
        ]
    markers = dict(zip(lines, (("#0a72b5", "s"), ("#d9590a", "D"), ("#008f68", "o")), strict=True))

    def paint(axes: Axes) -> None:
        axes.set_xscale("symlog", linthresh=10, linscale=0.6)
        for data, line in lines.items():
            colour, marker = markers[data]
            axes.plot(*zip(*line, strict=True), marker, color=colour, linestyle="-", markersize=6)
            axes.annotate(data, line[-1], (8, 0), textcoords="offset points", fontsize=9,
                          va="center_baseline", color=INK)  # fmt: skip
        axes.xaxis.set_major_locator(FixedLocator([0, 10, 25, 50, 100, 200]))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f}"))
        axes.set_xlim(-1, 900)
        axes.set_xlabel("budget, forward passes", fontsize=9.5)
        axes.set_ylabel("AUC", fontsize=9.5)

    summary = "; ".join(
        f"{data}: " + ", ".join(f"{auc:.3f} at {budget}" for budget, auc in line)
        for data, line in lines.items()
    )
    return Plot("budgets", "all", "What a budget buys", "",
                f"AUC by the budget of forward passes. {summary}.", draw(2.5, paint))  # fmt: skip


def clusters(texts: Sequence[str], labels: Sequence[str]) -> Plot:
    """A user's texts, clustered, with the representatives.

    Args:
        texts: The user's texts.
        labels: Their labels.
    """
    vectors = fala.Bundle.open(fala_sim.sample_release("glove")).backbone().encode(list(texts))
    classes = np.array([sorted(set(labels)).index(label) for label in labels])
    chosen = select(vectors, classes, count=20)
    centred = vectors - vectors.mean(axis=0)
    plane = centred @ np.linalg.svd(centred, full_matrices=False)[2][:2].T
    largest = np.argsort(-np.bincount(chosen.assignment))[:5].tolist()
    colours = ("#0a72b5", "#d9590a", "#008f68", "#bd5a9b", "#c78400")

    def paint(axes: Axes) -> None:
        for label, marker in ((0, "o"), (1, "^")):
            labelled = classes == label
            rest = plane[labelled & ~np.isin(chosen.assignment, largest)]
            axes.scatter(rest[:, 0], rest[:, 1], s=12, marker=marker, color=MUTED, alpha=0.35,
                         linewidths=0)  # fmt: skip
            for cluster, colour in zip(largest, colours, strict=True):
                members = plane[labelled & (chosen.assignment == cluster)]
                axes.scatter(members[:, 0], members[:, 1], s=16, marker=marker, color=colour,
                             linewidths=0)  # fmt: skip
        encoded = plane[chosen.order]
        axes.scatter(encoded[:, 0], encoded[:, 1], s=70, facecolors="none", edgecolors=INK,
                     linewidths=1.1)  # fmt: skip
        for marker, title in (("o", "fine"), ("^", "unwelcome")):
            axes.scatter([], [], s=16, marker=marker, color=MUTED, linewidths=0, label=title)
        axes.scatter([], [], s=70, facecolors="none", edgecolors=INK, label="encoded first")
        axes.legend(
            fontsize=8,
            frameon=False,
            ncols=3,
            columnspacing=1,
            handletextpad=0.2,
            loc="lower left",
            bbox_to_anchor=(0, 1),
        )
        axes.set_xticks([])
        axes.set_yticks([])
        axes.set_xlabel("old embeddings, first main direction", fontsize=9.5)
        axes.set_ylabel("second main direction", fontsize=9.5)

    return Plot(
        "clusters", "sample", "Representatives", "",
        f"{len(texts)} posts of one reader in the old embeddings' plane; round: fine, triangles: "
        f"unwelcome. The five largest of {len(set(chosen.assignment.tolist()))} clusters are "
        f"coloured; {len(chosen.order)} rings: the representatives.",
        draw(3.0, paint),
    )  # fmt: skip


def bridge(texts: Sequence[str]) -> Plot:
    """The vendor's logits over the bridge and by forward passes.

    Args:
        texts: A user's texts, not among the vendor's.
    """
    old, new = (fala.Bundle.open(fala_sim.sample_release(name)) for name in ("glove", "bert"))
    head, learned_bridge = new.head(), new.bridges()[old.backbone_digest]
    if head is None:
        raise fala.DataError("the sample release has no head")
    before, after = old.backbone().encode(list(texts)), new.backbone().encode(list(texts))
    weight = head.weight[0]
    logits = after @ weight
    mapped = learned_bridge.map(before) @ weight
    correlation = float(np.corrcoef(logits, mapped)[0, 1])

    def paint(axes: Axes) -> None:
        axes.scatter(mapped, logits, s=12, color=look("fala").colour, alpha=0.55, linewidths=0)
        ends = [min(mapped.min(), logits.min()), max(mapped.max(), logits.max())]
        axes.plot(ends, ends, color=MUTED, linewidth=0.9, linestyle="--")
        axes.set_xlabel("vendor's logit over the bridge, no forward pass", fontsize=9.5)
        axes.set_ylabel("vendor's logit by the new backbone", fontsize=9.5)

    return Plot("bridge", "sample", "What a bridge tells", "",
                f"The embedding's part of the vendor's logit for {len(texts)} posts, estimated "
                f"from the old embeddings and computed by the new backbone: correlation "
                f"{correlation:.2f}.", draw(2.9, paint))  # fmt: skip


def moved_words(texts: Sequence[str], labels: Sequence[str]) -> Plot:
    """The words whose weights a user's labels moved the most.

    Args:
        texts: The user's texts.
        labels: Their labels.
    """
    with (
        tempfile.TemporaryDirectory() as folder,
        fala.Device.create(Path(folder, "device"), fala_sim.sample_release("glove")) as device,
    ):
        device.learn(texts, labels)
        personal, head = device.model, device.model.head
    counts = Counter(word for text in texts for word in set(words(text)))
    frequent = [word for word, count in counts.items() if word.isalpha() and count >= LEAST]
    features = head.ngrams(frequent)
    embeddings = np.zeros((len(frequent), head.weight.shape[1]), np.float32)
    models = (personal, head.vendor_model())
    by_user, by_vendor = (model.logits(embeddings, features)[:, 0] for model in models)
    change = (by_user - personal.bias) - (by_vendor - head.bias)
    order = np.argsort(change)
    shown = [*order[:6], *order[-6:]]

    def paint(axes: Axes) -> None:
        colours = [look("full" if change[word] < 0 else "fala").colour for word in shown]
        axes.barh(range(len(shown)), change[shown], color=colours)
        axes.set_yticks(range(len(shown)), [frequent[word] for word in shown], fontsize=9)
        axes.set_xlabel("change of the word's logit by this user", fontsize=9.5)

    summary = ", ".join(f"{frequent[word]} {change[word]:+.2f}" for word in shown)
    return Plot(
        "words", "sample", "Words", "",
        f"Of the words in {LEAST} or more of one reader's {len(texts)} posts, the twelve whose "
        f"weights moved the furthest from the vendor's: {summary}.",
        draw(3.0, paint),
    )  # fmt: skip


def pictures() -> list[Plot]:
    """All pictures."""
    (_, user), *_ = sample_rows(users=1, seed=0).users.items()
    texts, labels = [str(row.example) for row in user.train], [str(row.label) for row in user.train]
    return [
        budgets(frame(RESULTS / "headline", "frontier")),
        *few_labels(frame(RESULTS / "labels", "labels")),
        clusters(texts, labels),
        bridge(texts),
        moved_words(texts, labels),
    ]


def main() -> None:
    """Draw all pictures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="Folder of the pictures.")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    for plot in pictures():
        (out / f"{plot.name}.svg").write_text(card(plot), encoding="utf-8")
        print(f"{plot.name}: {plot.alt}")


if __name__ == "__main__":
    main()
