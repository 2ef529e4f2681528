"""``fala-export prompts``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from fala.cli import progress
from fala_export.commands.command import Summary, command, name_of
from fala_export.commands.summary import text_of
from fala_export.families.prompts.settings import PromptedRelease


def _to_text(summary: Summary) -> str:
    if "answers" in summary:
        lines = [
            f"{summary['answers']}:",
            f"  {summary['rows']} rows, {summary['known']} of them of known writers",
            *_figures(summary["figures"]),
        ]
        return "\n".join(lines)
    training = summary["training"]
    lines = [
        text_of({key: value for key, value in summary.items() if key != "training"}),
        f"  trained on {training['data']['training']['rows']} rows",
        "  measured on texts that are in nobody's training rows, with the writer's prompt:",
        *_figures(training["figures"]),
    ]
    return "\n".join(lines)


def _figures(figures: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for name, parts in figures.items():
        cells = [
            f"{metric} {'-' if value is None else f'{value:.4f}'}"
            for metric, value in parts["pooled"].items()
        ]
        mean = parts["mean_over_users"]["auc"]
        yield (
            f"  {name:<8} {', '.join(cells)}; mean user's auc "
            f"{'-' if mean is None else f'{mean:.4f}'}"
        )


@command(PromptedRelease, _to_text)
def prompts(settings: PromptedRelease) -> Summary:
    """Train one backbone and head for all writers, with a prompt for each writer.

    Soft prompts are learnt vectors of each writer, before the text (soft-one) or as keys and
    values of every layer (soft-all); hard prompts are the writer's own texts, in the data's order
    (hard-static) or the most similar by n-grams first (hard-dynamic). The baselines are a bias of
    each user, and nothing. The release has the backbone and the head alone.
    """
    model, run, prompts, export = settings.model, settings.run, settings.prompts, settings.export
    if settings.evaluate is not None:
        if run is not None or prompts is not None:
            raise click.UsageError("--evaluate is for a trained model: no --data, --kind or --work")
        return _evaluate(Path(model.source), settings.evaluate, settings.out, settings.embeddings)
    if settings.embeddings:
        raise click.UsageError("--embeddings is for --evaluate")
    if run is None or prompts is None:
        raise click.UsageError(
            "a training needs --data, --kind and --work, an evaluation --evaluate"
        )
    if mistake := prompts.mistake():
        raise click.UsageError(mistake)
    with progress("loading libraries"):
        from fala_export.families.prompts.release import save_prompts
        from fala_export.families.prompts.training import train_prompts
        from fala_export.models.encoder import load_encoder
        from fala_export.training.public_rows import load_public_rows
        from fala_export.training.release import write_trained

    rows = load_public_rows(run.data)
    trained = train_prompts(
        load_encoder(model.source, settings.pooling, model.revision), rows, prompts,
        settings.training, run.work,
        max_length=export.max_length, resume=run.resume, lexical=run.lexical,
    )  # fmt: skip
    save_prompts(trained.model, run.work / "model")
    options = replace(export, name=export.name or name_of(model.source))
    return write_trained(trained.trained, settings.out, options)


def _evaluate(folder: Path, data: Path, out: Path, embeddings: bool) -> Summary:
    from fala_export.families.prompts.evaluation import evaluate
    from fala_export.families.prompts.release import load_prompts

    return evaluate(load_prompts(folder), data, out, embeddings=embeddings)
