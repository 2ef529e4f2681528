"""The pictures of the documentation, drawn from records and from the built-in models.

    python recipes/pictures.py --out docs/images

Every picture is an SVG on a card: light or dark as the reader's system, whatever the page is. Its
text is large enough for a phone.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
from fala_sim.experiments.labels.plots import labels as few_labels
from fala_sim.experiments.replacement import blends
from fala_sim.metric.statistics import describe, mean_over_users, over_users
from fala_sim.metric.value import Value
from fala_sim.playground.sample import sample_rows
from fala_sim.report.groups import by_setting, of_tasks, parts
from fala_sim.report.plot import INK, MUTED, Plot, draw, look

RESULTS = Path(__file__).parents[1] / "device_sim" / "results"

#: The studies of the first picture, with their backbones and people.
STUDIES: Mapping[str, str] = {
    "replacement": "MiniLM, 14 people",
    "trained": "MPNet, 9 people",
}

#: The methods of the first picture, from its top, with their titles.
SHOWN: Mapping[str, str] = {
    "fala-instant": "FaLA at once",
    "fala": "FaLA",
    "full": "full fine-tuning",
    "adapter": "adapters",
    "lora": "LoRA",
    "top": "a trained top layer",
    "fala-paper": "the paper's FaLA",
}

#: Methods with as many backward passes as forward passes.
TRAINED = ("full", "adapter", "lora")

#: Fewest texts that contain a word of the last picture.
LEAST = 5

# A card's margin, and its colours: paper, text, less important text, lines.
_MARGIN = 8.0
_LIGHT = ("#fbfbfc", "#1b1f24", "#5b6470", "#d5d9de")
_DARK = ("#1f232a", "#e8eaed", "#a3abb6", "#3d434c")


def card(plot: Plot) -> str:
    """A plot as an SVG file, on a background."""

    def colours(paper: str, ink: str, muted: str, faint: str) -> str:
        return f":root{{--paper:{paper};color:{ink};--muted:{muted};--faint:{faint}}}"

    root = ElementTree.fromstring(plot.svg())
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
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def mean(runs: pd.DataFrame, figure: str) -> float:
    """A column's mean over people."""
    value = mean_over_users(runs, figure)
    if value is None:
        raise fala.DataError("the records have no such figure")
    return value.mean


def interval(value: Value) -> tuple[float, float]:
    """A mean's interval over people."""
    if value.low is None or value.high is None:
        raise fala.DataError("too few people for an interval")
    return value.low, value.high


@dataclass(frozen=True)
class Gain:
    """A method's AUC above the vendor's new model.

    Attributes:
        method: The method.
        title: Its name, with the passes of a replacement.
        alone: Without a blend.
        blended: Blended with the user's words and the old model; None if the method reads words, or
            if records are missing.
    """

    method: str
    title: str
    alone: Value
    blended: Value | None


def gains(study: str) -> list[Gain]:
    """The methods of a study, compared with the vendor's new model as shipped."""
    records = frame(RESULTS / study, "replacement", "search")
    runs = of_tasks(records, "replacement")
    vendor = over_users(runs[runs["method"] == "global-words"], "scores.auc")
    both = blends.best_blends(blends.with_blends(runs, records))

    def above(name: str) -> Value | None:
        by_user = over_users(both[both["method"] == name], "scores.auc")
        return describe([auc - vendor[user] for user, auc in by_user.items()]) if by_user else None

    shown = []
    for name, title in SHOWN.items():
        if (alone := above(name)) is not None:
            passes = f"{mean(runs[runs['method'] == name], 'cost.total.forward_passes'):,.0f}"
            passes = f"{passes} + {passes}" if name in TRAINED else passes
            blended = above(name + blends.BEST)
            shown.append(Gain(name, f"{title}: {passes} passes", alone, blended))
    return shown


def quality() -> Plot:
    """AUC above the vendor's new model as shipped, with intervals over people."""
    studies = {title: gains(study) for study, title in STUDIES.items()}

    def paint(axes: Axes) -> None:
        axes.axvline(0, color=MUTED, linewidth=0.9, linestyle="--")
        rows: list[str] = []
        for title, shown in studies.items():
            rows.append(title)
            for gain in shown:
                colour, marker = look(gain.method)
                marks = [(gain.alone, 0.0, 8, colour), (gain.blended, 0.32, 6, "none")]
                for value, below, size, filled in marks:
                    if value is not None:
                        row = len(rows) + below
                        axes.hlines(row, *interval(value), color=colour, linewidth=size / 5)
                        axes.plot(value.mean, row, marker, color=colour, markersize=size,
                                  markerfacecolor=filled, zorder=3)  # fmt: skip
                rows.append(gain.title.replace(": ", "\n"))
        axes.set_yticks(range(len(rows)), rows, fontsize=9)
        for label in axes.get_yticklabels():
            if label.get_text() in studies:
                label.set_fontweight("bold")
        axes.set_ylim(len(rows) - 0.3, -0.5)
        axes.grid(visible=False, axis="y")
        axes.tick_params(labelsize=9)
        axes.set_xlabel(
            "AUC above the vendor's new model with words\n"
            "means over people, 95 % intervals; hollow: with the\n"
            "user's words and the old model blended in",
            fontsize=9, loc="right",
        )  # fmt: skip

    summary = " ".join(
        f"{title}: "
        + "; ".join(
            "{}, {:+.3f} ({:.3f} to {:.3f})".format(
                gain.title, gain.alone.mean, *interval(gain.alone)
            )
            + (
                ""
                if gain.blended is None
                else f", with words and the old model {gain.blended.mean:+.3f}"
            )
            for gain in shown
        )
        + "."
        for title, shown in studies.items()
    )
    return Plot(
        "quality", "all", "Quality and forward passes", "",
        "AUC above the vendor's new model with words, means with 95 % intervals over people, and "
        f"passes of a replacement, forward + backward. {summary}",
        draw(6.0, paint),
    )  # fmt: skip


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
    features = head.words(frequent)
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
        quality(),
        budgets(frame(RESULTS / "replacement", "frontier")),
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
