"""Choose a backbone's pooling by public annotators, who are played as devices.

The candidates are the model's own pooling of its last layer and of its layer at two thirds, after
which it is cut; three layers; and three layers with maxima. Each text is embedded once for all of
them. For each candidate a head with words is fitted in closed form. Every annotator's personal
model is then fitted to the logits of heads that were not fitted to their documents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from fala.backbones.external import ExternalEncoder
from fala.base.examples import unique_texts
from fala.cli import progress
from fala.model.heads import Vectors
from fala.model.links import Rating
from fala.model.losses import Floats
from fala_export.backbone import convert
from fala_export.embedding.tokens import embed_tokens, placed
from fala_export.errors import ExportError
from fala_export.fitting import heads
from fala_export.fitting.device_fit import LeftOut, one_blas_thread
from fala_export.fitting.heads import fit_joint_head, kind_of, left_out_logits
from fala_export.fitting.metrics import margin_of
from fala_export.fitting.population.scales import (
    LEAST_ANNOTATORS,
    LEAST_ROWS,
    AnnotatedRows,
    beside_vendor,
    choose_scales,
    rows_by_name,
    training_sets,
)
from fala_export.fitting.samples import drawn, evenly
from fala_export.graph.cost import cost
from fala_export.graph.sentences import parity_texts
from fala_export.models.encoder import Encoder
from fala_export.models.sentence_encoder import LAYER_POOLINGS, SentenceEncoder, layer_count
from fala_export.models.source import load_source, needs_own
from fala_export.rows.table import Rows
from fala_export.settings import ExportOptions, FrozenPooling, ModelSource
from fala_export.training.public_rows import PublicRows

# Annotators, rows of each, and documents and rows beside theirs that the heads are fitted to.
_PEOPLE, _ROWS_EACH, _DOCUMENTS, _ROWS = 100, 200, 3_000, 10_000
_PLAYED = "annotators played as devices"
_TOKENS = "64"  # length of the text whose operations are compared


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A pooling, with its encoder and its cost."""

    pooling: FrozenPooling
    encoder: Encoder
    megabytes: float
    operations: int


def choose_pooling(
    model: ModelSource,
    options: ExportOptions,
    rows: PublicRows,
    max_megabytes: float | None = None,
    max_operations: float | None = None,
) -> dict[str, Any]:
    """Choose the pooling with the least loss within a budget.

    Args:
        model: A transformer.
        options: The export options.
        rows: The public rows.
        max_megabytes: Most megabytes of the model and its tokenizer; None for any number.
        max_operations: Most operations of a pass of 64 tokens; None for any number.

    Returns:
        ``pooling`` and ``layers``, the number of layers that are kept; ``measure``, the kind of
        loss; ``annotators``, ``rows`` and ``texts`` that it was measured on; and the
        ``candidates``, with ``loss``, ``numbers``, ``megabytes``, ``operations``, and whether they
        are ``within`` the budget.

    Raises:
        ExportError: The model has no inner layers, or no candidate is within the budget.
    """
    candidates = _candidates(model, options)
    people, used = _drawn(rows.rows)
    texts = unique_texts(row.example for row in used)
    embeddings = _embeddings([each.encoder for each in candidates], texts, options)
    table = []
    with progress("comparing poolings", len(candidates)) as bar:
        for each, vectors in zip(candidates, embeddings, strict=True):
            by_text = dict(zip(texts, vectors, strict=True))
            loss, margin = _loss(rows, used, people, by_text, vectors.shape[1])
            table.append({
                "pooling": each.pooling, "layers": each.encoder.module.layers,
                "loss": round(loss, 5), "margin": None if margin is None else round(margin, 5),
                "numbers": vectors.shape[1], "megabytes": each.megabytes,
                "operations": each.operations,
            })  # fmt: skip
            bar.update(1)
    chosen = choose(table, max_megabytes, max_operations)
    return {
        "pooling": chosen["pooling"],
        "layers": max(chosen["layers"]),
        "measure": f"{_measure(rows)} of {_PLAYED if people else 'left-out documents'}",
        "annotators": len(people),
        "rows": len(used),
        "texts": len(texts),
        "candidates": table,
    }


def choose(
    table: Sequence[dict[str, Any]], max_megabytes: float | None, max_operations: float | None
) -> dict[str, Any]:
    """The candidate with the least loss within a budget; see ``choose_pooling``.

    Args:
        table: The candidates; ``within`` is added to each.
        max_megabytes: See ``choose_pooling``.
        max_operations: See ``choose_pooling``.

    Raises:
        ExportError: None is within the budget.
    """
    for each in table:
        each["within"] = (max_megabytes is None or each["megabytes"] <= max_megabytes) and (
            max_operations is None or each["operations"] <= max_operations
        )
    affordable = [each for each in table if each["within"]]
    if not affordable:
        least = min(table, key=lambda each: each["megabytes"])
        raise ExportError(
            "no pooling is within max_megabytes and max_operations: the smallest has "
            f"{least['megabytes']} MB, and takes {least['operations']:.3g} operations a pass of "
            f"{_TOKENS} tokens"
        )
    return min(affordable, key=lambda each: each["loss"])


def _measure(rows: PublicRows) -> str:
    return "half the squared error" if rows.link.kind == "rating" else rows.link.measure


def _candidates(model: ModelSource, options: ExportOptions) -> list[_Candidate]:
    own, _ = load_source(model, "own", options)
    if not isinstance(own, Encoder):
        raise ExportError(f'{model.source}: pooling = "auto" is for a transformer with its weights')
    if reason := needs_own(own.module, options):
        raise ExportError(f'{model.source}: pooling = "auto" has no choice: {reason}')
    transformer, normalize = own.module.transformer, own.module.normalize
    layers = layer_count(transformer.config)

    def pooled(pooling: FrozenPooling) -> Encoder:
        module = SentenceEncoder(transformer, pooling, normalize)
        return replace(own, module=module.eval())

    whole = _cost(own, options)
    result = [_Candidate("own", own, *whole)]
    if (middle := round(2 * layers / 3)) < layers:
        cut, _ = load_source(replace(model, layers=middle), "own", options)
        if not isinstance(cut, Encoder):
            raise TypeError("a transformer is cut")
        result.append(_Candidate("own", cut, *_cost(cut, options)))
    three = [_Candidate(each, pooled(each), *whole) for each in LAYER_POOLINGS]
    return [*result, *three]


def _cost(encoder: Encoder, options: ExportOptions) -> tuple[float, int]:
    """Megabytes of an encoder's files, and operations of a pass."""
    export = convert(encoder, options, parity_texts(None)[::8])
    operations = cost(export.float_model, encoder.longest)["flops"]
    return export.megabytes, operations.get(_TOKENS, max(operations.values(), default=0))


def _drawn(rows: Rows) -> tuple[list[str], Rows]:
    """Annotators to play, none of too few; and their rows, with others for the heads."""
    by_name = rows_by_name(rows.user_names, LEAST_ROWS)
    people = drawn(by_name, _PEOPLE) if len(by_name) >= LEAST_ANNOTATORS else []
    others = np.flatnonzero(rows.on_documents_of(rows.sample_documents(_DOCUMENTS)))
    theirs = (by_name[name][evenly(len(by_name[name]), _ROWS_EACH)] for name in people)
    chosen = [others[evenly(len(others), _ROWS)], *theirs]
    return people, rows.take(np.unique(np.concatenate(chosen)))


class _Together(nn.Module):
    """The embeddings of several encoders, concatenated; a pass of each transformer serves all.

    A cut transformer takes no pass of its own if its last states are those of a layer of the first
    encoder's: they are not in families with a norm after the last layer, whichever it is.
    """

    def __init__(self, encoders: Sequence[SentenceEncoder]) -> None:
        super().__init__()
        whole, ids = encoders[0].transformer, torch.zeros((1, 2), dtype=torch.long)
        with torch.inference_mode():
            layers = _states(whole, ids, torch.ones_like(ids))
            self._parts = []
            for encoder in encoders:
                runs, depth = encoder.transformer, layer_count(encoder.transformer.config)
                if runs is not whole:
                    last = _states(runs, ids, torch.ones_like(ids))[-1]
                    runs = whole if torch.allclose(last, layers[depth], atol=1e-5) else runs
                self._parts.append((encoder, runs, depth))
        self.transformers = nn.ModuleList({id(runs): runs for _, runs, _ in self._parts}.values())
        self.poolers = nn.ModuleList(encoder.pooler for encoder in encoders)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Embed texts."""
        states: dict[nn.Module, Sequence[Tensor]] = {}
        parts = []
        for encoder, runs, depth in self._parts:
            if runs not in states:
                states[runs] = _states(runs, ids, mask)
            layers = states[runs][: depth + 1]
            parts.append(encoder.pool(layers[-1], mask, layers))
        return torch.cat(parts, dim=1)


def _states(transformer: PreTrainedModel, ids: Tensor, mask: Tensor) -> Sequence[Tensor]:
    """The states of each layer, from the embeddings on."""
    output = transformer(input_ids=ids, attention_mask=mask, output_hidden_states=True)
    return (*output.hidden_states[:-1], output.last_hidden_state)


def _embeddings(
    encoders: Sequence[Encoder], texts: Sequence[str], options: ExportOptions
) -> list[Vectors]:
    """Each encoder's embeddings of n texts, (n, dim)."""
    first, dimensions = encoders[0], [encoder.module.dimension for encoder in encoders]
    ids = first.token_ids(texts, first.length(options.max_length))
    together = _Together([encoder.module for encoder in encoders])
    with placed(together), progress("embedding texts for all poolings", len(texts)) as bar:
        vectors = embed_tokens(together, ids, first.pad_id, sum(dimensions), bar.update, half=True)
    return np.split(vectors, np.cumsum(dimensions)[:-1], axis=1)


def _loss(
    rows: PublicRows,
    used: Rows,
    people: Sequence[str],
    embeddings: Mapping[str, Vectors],
    dimension: int,
) -> tuple[float, float | None]:
    """The mean loss a row: of the people's personal models, or without people of the head.

    Returns:
        It, and half of its 95 % interval over people, or over rows.
    """
    examples, labels = [row.example for row in used], [row.label for row in used]
    public = heads.PublicRows.of(
        ExternalEncoder("", dimension, None), examples, labels, label_names=rows.labels,
        embeddings=embeddings, every=True, **kind_of(rows.link),
    )  # fmt: skip
    head, joint = fit_joint_head(public)
    logits, shares = left_out_logits(public, joint.penalties), head.label_shares(labels)
    # A rating's loss is in units of its head's noise, which differs between heads.
    unit = head.link.noise**2 if isinstance(head.link, Rating) else 1.0
    if not people:
        return _with_margin(unit * head.link.losses(shares, logits))
    # Rows of an annotator beyond those that were drawn for them are of the drawn documents.
    by_name = rows_by_name([row.user for row in used], LEAST_ROWS)
    each = [by_name[name][evenly(len(by_name[name]), _ROWS_EACH)] for name in people]
    positions = np.concatenate(each)
    their_examples = [examples[position] for position in positions.tolist()]
    names = [str(used[position].user) for position in positions.tolist()]
    annotated = AnnotatedRows(
        head, head.inputs(their_examples, embeddings), head.words(their_examples),
        logits[positions], shares[positions], names, len(people),
    )  # fmt: skip
    played = training_sets(annotated, LEAST_ROWS)
    with one_blas_thread():
        scales = beside_vendor(choose_scales(played, LEAST_ROWS))
        devices = [LeftOut.of(each) for of_person in played for each in of_person]
        losses = [device.losses(device.full(scales)[0]).mean() for device in devices]
    return _with_margin(unit * np.array(losses))


def _with_margin(losses: Floats) -> tuple[float, float | None]:
    return float(losses.mean()), margin_of(losses.tolist())
