"""Training of a transformer and its head on one user's labels."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import fala_export
from fala import Match
from fala.base.examples import document_of
from fala.model.heads import Head, PersonalModel
from fala_export import Encoder
from fala_export.base.accelerator import torch_device
from fala_sim.data.users import UserExample, distinct_texts
from fala_sim.methods.situation import Situation
from fala_sim.methods.training.torch_flops import BATCH, TOKENS, batch_flops
from fala_sim.methods.training.transformer import Adapt, open_encoder
from fala_sim.prepare.measured import LogitArray

_MEGABATCH = 20  # number of batches within which documents are sorted by length
_WARMUP = 0.1  # share of the first epoch
#: The largest length of the gradient.
CLIP = 1.0

_log = logging.getLogger("fala.sim.training")


class Network(nn.Module):
    """A transformer and a head, from examples to logits; see ``fala_export.Head``.

    Args:
        encoder: Embeds the texts, truncated as in the release.
        head: Head with the initial weights. w and b are trained; a matcher's attention query stays
            the vendor's, as on the device.
    """

    query: Tensor

    def __init__(self, encoder: Encoder, head: Head) -> None:
        super().__init__()
        self.encoder = encoder.module
        self.pad_id = encoder.pad_id
        self.weight = nn.Parameter(torch.tensor(head.weight))
        self.bias = nn.Parameter(torch.tensor(head.bias))
        # Zeros give a history's texts equal weights, like a head without a query.
        query = torch.zeros(head.dimension) if head.query is None else torch.tensor(head.query)
        self.register_buffer("query", query)

    def forward(self, examples: Sequence[UserExample], tokens: dict[str, list[int]]) -> Tensor:
        """Return logits of n examples, shape (n, C); each of their texts is embedded once.

        Args:
            examples: Examples of the head's task.
            tokens: Token ids of every text in the examples.
        """
        groups = by_length(examples, tokens)
        padded = [
            fala_export.pad([tokens[text] for text in group], self.pad_id) for group in groups
        ]
        place = self.query.device
        vectors = torch.cat([self.encoder(ids.to(place), mask.to(place)) for ids, mask in padded])
        row = {text: position for position, text in enumerate(chain(*groups))}
        logits: Tensor = head_inputs(examples, vectors, row, self.query) @ self.weight.T + self.bias
        return logits


def head_inputs(
    examples: Sequence[UserExample], vectors: Tensor, row: Mapping[str, int], query: Tensor
) -> Tensor:
    """Return a head's inputs of n examples, shape (n, d).

    Args:
        examples: Examples of one task.
        vectors: Embeddings of texts, shape (m, d).
        row: The row of every text.
        query: A matcher's attention query, shape (d,).
    """
    inputs = vectors[[row[document_of(example)] for example in examples]]
    matches = [example for example in examples if isinstance(example, Match)]
    if matches:
        histories = [[row[text] for text in match.history] for match in matches]
        history, opened = (part.to(query.device) for part in fala_export.pad(histories, 0))
        inputs = inputs * fala_export.user_vectors(vectors, history, opened, query)
    return inputs


class UserBatches:
    """One user's training examples in batches, which are the same in every training with a seed.

    Attributes:
        tokens: Token ids of every text.
        shares: The labels as class shares, shape (n, C), on the accelerator.
    """

    def __init__(self, situation: Situation, encoder: Encoder) -> None:
        self._situation = situation
        texts = distinct_texts(situation.user.train)
        self.tokens = dict(zip(texts, encoder.token_ids(texts, encoder.longest), strict=True))
        shares = situation.label_shares().astype(np.float32)
        self.shares = torch.from_numpy(shares).to(torch_device())

    def of_epoch(self, number: int) -> tuple[int, list[NDArray[Any]]]:
        """Return the seed of an epoch's dropout, and the rows of each of its batches.

        An epoch has a random stream of its own, independent of what happens between epochs.

        Args:
            number: Number of the epoch, counted from 0.
        """
        order = np.random.default_rng([self._situation.seed, number])
        return int(order.integers(2**31)), self._divided(order)

    def _divided(self, order: np.random.Generator) -> list[NDArray[Any]]:
        """Return the rows of every batch of an epoch.

        Documents of similar length share a batch, so that there is little padding. A matcher's
        neighbours in time share most of their history, so they share a batch and its embeddings.
        """
        train = self._situation.user.train
        rows = np.arange(len(train))
        if not any(isinstance(example, Match) for example in train):
            rows = order.permutation(rows)
            lengths = np.array([len(self.tokens[document_of(example)]) for example in train])
            run = np.arange(len(rows)) // (_MEGABATCH * BATCH)
            rows = rows[np.lexsort((lengths[rows], run))]
        batches = [rows[start : start + BATCH] for start in range(0, len(rows), BATCH)]
        return [batches[position] for position in order.permutation(len(batches))]


def losses_of(head: Head, logits: Tensor, shares: Tensor) -> Tensor:
    """Return the loss of each example in nats, as on the device.

    For a rating it is the squared error, and for tags the sum over the tags.
    """
    link = head.link
    if link.kind == "rating":
        noise = 2 * link.spread  # noise of a rating
        return ((logits - shares) / noise).square().sum(dim=1) / 2
    if link.kind == "tags":
        losses = nn.functional.binary_cross_entropy_with_logits
        return losses(logits, shares, reduction="none").sum(dim=1)
    return fala_export.cross_entropies(logits, shares)


def warm_up(step: int, batches: int) -> float:
    """Return the share of the learning rate at a step, which is counted from 1."""
    return min(1.0, step / max(1.0, _WARMUP * batches))


class UserTraining:
    """One training on the accelerator, with scores after each epoch.

    The optimizer is AdamW. The rate rises linearly over the first tenth of the first epoch and is
    then constant, so that n epochs are a prefix of a longer training. Other uses of random numbers
    between epochs do not change the training.

    Args:
        situation: The user, the vendor's release and head, the seed and the meter.
        folder: Hugging Face folder of the transformer.
        adapt: Function that sets which parameters train.
        rate: The learning rate.

    Raises:
        DataError: The folder is not a model that the method can train.
    """

    def __init__(self, situation: Situation, folder: Path, adapt: Adapt, rate: float) -> None:
        self._situation = situation
        self._adapt, self._folder, self._rate = adapt, folder, rate
        self._epochs = self._steps = 0
        self._shapes: Counter[tuple[int, int]] = Counter()
        head, meter = situation.new.head, situation.meter
        with meter.stage("load"), torch.random.fork_rng(devices=[]):
            torch.manual_seed(situation.seed)
            encoder = open_encoder(folder, situation.new.path)
            encoder.module.transformer = adapt(encoder.module.transformer)
            self._network = Network(encoder, head).to(torch_device())
        self._encoder = encoder
        self._trained = [p for p in self._network.parameters() if p.requires_grad]
        self._optimizer = torch.optim.AdamW(self._trained, lr=rate, fused=True)
        meter.stored_bytes = sum(p.numel() * p.element_size() for p in self._trained)
        with meter.stage("train"):
            self._batches = UserBatches(situation, encoder)

    def epoch(self) -> None:
        """Train on every example once."""
        start = time.perf_counter()
        situation = self._situation
        seed, batches = self._batches.of_epoch(self._epochs)
        losses = []
        with situation.meter.stage("train") as stage, torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self._network.to(torch_device()).train()  # computing scores leaves it on the CPU
            tokens = self._batches.tokens
            for rows in batches:
                examples = [situation.user.train[row] for row in rows]
                self._warm(len(batches))
                losses.append(self._step(examples, self._batches.shares[rows]))
                for group in by_length(examples, tokens):
                    self._shapes[len(group), len(tokens[group[-1]])] += 1
                    stage.forward_passes += len(group)
                    stage.backward_passes += len(group)
            loss = float(torch.stack(losses).mean()) if losses else 0.0
        self._epochs += 1
        _log.info(
            "epoch %d of %s: loss %.4f, %.1f s",
            self._epochs,
            situation.user.name,
            loss,
            time.perf_counter() - start,
        )

    def scores(self, examples: Sequence[UserExample]) -> LogitArray:
        """Return logits (n, C) of the current model."""
        network, head = self._network.eval(), self._situation.new.head
        texts = distinct_texts(examples)
        vectors = self._encoder.encode(texts, self._encoder.longest)
        embeddings = dict(zip(texts, vectors, strict=True))
        weight, bias = (p.detach().cpu().numpy() for p in (network.weight, network.bias))
        personal = PersonalModel(head, weight, bias)
        logits: LogitArray = personal.logits(head.inputs(examples, embeddings)).astype(np.float64)
        return logits

    def count_flops(self) -> None:
        """Add the FLOPs of all batches so far, and of a full batch, to the meter.

        Counting is not part of the replacement, so no stage times it.
        """
        meter, longest = self._situation.meter, self._encoder.longest
        logits = len(self._network.bias)
        flops = batch_flops(self._folder, self._adapt, longest, logits)
        stage = meter.stages["train"]
        stage.forward_flops = stage.backward_flops = 0.0
        for (texts, tokens), times in self._shapes.items():
            forward, backward = flops(texts, tokens)
            stage.forward_flops += times * forward
            stage.backward_flops += times * backward
        tokens = min(TOKENS, longest)
        forward, backward = flops(BATCH, tokens)
        meter.batch = {
            "examples": BATCH,
            "tokens": tokens,
            "forward_flops": forward,
            "backward_flops": backward,
        }

    def _step(self, examples: Sequence[UserExample], shares: Tensor) -> Tensor:
        logits = self._network(examples, self._batches.tokens)
        loss = losses_of(self._situation.new.head, logits, shares).mean()
        self._optimizer.zero_grad()
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(self._trained, CLIP)
        self._optimizer.step()
        return loss.detach()  # read only after the epoch, because each reading waits for a GPU

    def _warm(self, batches: int) -> None:
        """Set the rate of the next step."""
        self._steps += 1
        for group in self._optimizer.param_groups:
            group["lr"] = self._rate * warm_up(self._steps, batches)


def by_length(examples: Sequence[UserExample], tokens: dict[str, list[int]]) -> list[list[str]]:
    """Return the distinct texts of some examples in groups of similar length, the longest last.

    A batch of matches has histories and candidates. If all were padded to the longest text, half of
    the work would be padding.
    """
    texts = sorted(distinct_texts(examples), key=lambda text: len(tokens[text]))
    return [texts[start : start + BATCH] for start in range(0, len(texts), BATCH)]
