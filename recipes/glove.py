"""Static word vectors by GloVe's own objective (Pennington, Socher and Manning, EMNLP 2014)."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np
from numpy.typing import NDArray

from fala.backbones.word_vectors import words
from fala.base.files import write_atomically

if TYPE_CHECKING:
    import torch
    from scipy import sparse

Floats = NDArray[np.float32]
Counts = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class GloveSettings:
    """Settings of a training.

    Attributes:
        dimension: Length of a vector.
        vocabulary: Most frequent words kept.
        least_count: Fewest occurrences of a word that is kept.
        window: Words on each side that count as context, weighted by 1 / distance.
        least_weight: Lightest pair that is kept. Most pairs are lighter, but they hardly
            change the objective.
        x_max: Where the weight f(x) = (x / x_max)^0.75 reaches its maximum of 1; the authors
            chose 10 for corpora of millions of words.
        epochs: Passes over the co-occurrences.
        batch: Co-occurrences a step.
        learning_rate: AdaGrad's.
    """

    dimension: int = 100
    vocabulary: int = 15_000
    least_count: int = 3
    window: int = 10
    least_weight: float = 0.3
    x_max: float = 10.0
    epochs: int = 25
    batch: int = 8_192
    learning_rate: float = 0.1


@dataclass(frozen=True)
class Cooccurrences:
    """Unordered pairs of words that occur near each other.

    Attributes:
        first: Word index of each pair, shape (n,).
        second: The other word's index, not below ``first``.
        weight: Sum over occurrences of 1 / distance.
    """

    first: Integers
    second: Integers
    weight: Floats


def count_vocabulary(documents: Iterable[Sequence[str]], size: int, least_count: int) -> list[str]:
    """List the most frequent words by falling frequency, then alphabetically."""
    counts = Counter(word for document in documents for word in document)
    frequent = [item for item in counts.items() if item[1] >= least_count]
    return [word for word, _ in sorted(frequent, key=lambda item: (-item[1], item[0]))[:size]]


def count_cooccurrences(
    documents: Iterable[Sequence[str]],
    vocabulary: Sequence[str],
    window: int,
    least_weight: float,
) -> Cooccurrences:
    """Count near pairs within documents, without the words outside the vocabulary.

    Args:
        documents: Words of each document.
        vocabulary: The words to count.
        window: Largest distance.
        least_weight: Lightest pair that is kept.
    """
    from scipy import sparse

    index = {word: number for number, word in enumerate(vocabulary)}
    ids: list[int] = []
    ends: list[int] = []
    for document in documents:
        ids.extend(index[word] for word in document if word in index)
        ends.append(len(ids))
    tokens = np.asarray(ids, dtype=np.int64)
    owner = np.searchsorted(np.asarray(ends), np.arange(len(tokens)), side="right")
    size = len(vocabulary)
    total: sparse.csr_array = sparse.csr_array((size, size), dtype=np.float64)
    for distance in range(1, window + 1):
        near = owner[:-distance] == owner[distance:]
        left, right = tokens[:-distance][near], tokens[distance:][near]
        low, high = np.minimum(left, right), np.maximum(left, right)
        weights = np.full(len(low), 1 / distance)
        total = total + sparse.coo_array((weights, (low, high)), shape=(size, size)).tocsr()
    pairs = total.tocoo()
    kept = pairs.data >= least_weight
    return Cooccurrences(
        first=pairs.row[kept].astype(np.int64),
        second=pairs.col[kept].astype(np.int64),
        weight=pairs.data[kept].astype(np.float32),
    )


class Glove:
    """The model: a vector and a bias for every word, as centre and as context.

    The bias is the vector's last coordinate.

    Args:
        size: Number of words.
        settings: The training's settings.
        seed: The seed of the first vectors.

    Attributes:
        epoch: Number of completed epochs.
        loss: The objective's mean term in the last epoch.
    """

    def __init__(self, size: int, settings: GloveSettings, seed: int) -> None:
        import torch

        self.settings, self._seed = settings, seed
        self.epoch, self.loss = 0, float("nan")
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.rand(2, size, settings.dimension + 2, generator=generator)
        drawn[1, :, -2] = drawn[1, :, -1]  # as the shipped vectors began
        tables = (drawn[..., :-1] - 0.5) / settings.dimension
        self._tables = [torch.nn.Parameter(table.clone()) for table in tables]
        self._optimizer = torch.optim.Adagrad(
            self._tables, settings.learning_rate, initial_accumulator_value=1.0
        )

    @property
    def vectors(self) -> Floats:
        """Sum of centre and context vectors, shape (size, dimension)."""
        centres, contexts = self._tables
        return np.asarray((centres + contexts).detach()[:, :-1].numpy(), dtype=np.float32)

    def train_epoch(self, pairs: Cooccurrences) -> None:
        """Train on all pairs once, each in a random direction.

        ``loss`` becomes the mean of the objective's terms (the paper's equation 8),
        f(x) (w . c + b_w + b_c - log x)^2, each before its own step.
        """
        import torch

        settings = self.settings
        generator = torch.Generator().manual_seed(self._seed * 1_000 + self.epoch)
        order = torch.randperm(len(pairs.weight), generator=generator)
        swap = torch.rand(len(order), generator=generator) < 0.5
        first, second = torch.from_numpy(pairs.first)[order], torch.from_numpy(pairs.second)[order]
        weight = torch.from_numpy(pairs.weight)[order]
        centre = torch.where(swap, second, first)
        context = torch.where(swap, first, second)
        importance = (weight / settings.x_max).clamp(max=1.0).pow(0.75)
        target = weight.log()
        total = 0.0
        for start in range(0, len(order), settings.batch):
            part = slice(start, start + settings.batch)
            total += self._step(centre[part], context[part], importance[part], target[part])
        self.epoch += 1
        self.loss = total / len(order)

    def _step(
        self,
        centre: torch.Tensor,
        context: torch.Tensor,
        importance: torch.Tensor,
        target: torch.Tensor,
    ) -> float:
        from torch.nn.functional import embedding

        left, right = map(embedding, (centre, context), self._tables)
        products = (left[:, :-1] * right[:, :-1]).sum(1)
        error = products + left[:, -1] + right[:, -1] - target
        loss = (importance * error.square()).sum()
        self._optimizer.zero_grad()
        (loss / 2).backward()
        self._optimizer.step()
        return float(loss.detach())

    def save(self, path: Path) -> None:
        """Write a checkpoint, whole or not at all."""
        import torch

        state = {
            "epoch": self.epoch,
            "loss": self.loss,
            "tables": self._tables,
            "optimizer": self._optimizer.state_dict(),
        }
        write_atomically(path, lambda part: torch.save(state, part))

    def load(self, path: Path) -> None:
        """Continue from a checkpoint."""
        import torch

        state = torch.load(path, weights_only=True)
        self.epoch, self.loss = state["epoch"], state["loss"]
        for table, values in zip(self._tables, state["tables"], strict=True):
            table.data.copy_(values)
        self._optimizer.load_state_dict(state["optimizer"])


def train_glove(
    texts: Sequence[Sequence[str]], work: Path, seed: int, settings: GloveSettings
) -> tuple[Path, dict[str, float]]:
    """Train word vectors; resume an interrupted training.

    Args:
        texts: Sentences of each document.
        work: Folder of the checkpoints.
        seed: The seed of the first vectors and of the order of the pairs.
        settings: The training's settings.

    Returns:
        The vectors as a file in GloVe's text format, and the training's figures.
    """
    documents = [[word for text in document for word in words(text)] for document in texts]
    vocabulary = count_vocabulary(documents, settings.vocabulary, settings.least_count)
    pairs = count_cooccurrences(documents, vocabulary, settings.window, settings.least_weight)
    recipe = json.dumps([asdict(settings), seed, vocabulary, float(pairs.weight.sum())])
    run = work / f"glove-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"
    run.mkdir(parents=True, exist_ok=True)
    model = Glove(len(vocabulary), settings, seed)
    checkpoint = run / "checkpoint.pt"
    if checkpoint.exists():
        model.load(checkpoint)
    while model.epoch < settings.epochs:
        model.train_epoch(pairs)
        model.save(checkpoint)
        click.echo(
            f"GloVe: epoch {model.epoch} of {settings.epochs}, loss {model.loss:.5f}", err=True
        )
    path = run / "glove.txt"
    write_atomically(path, lambda part: _write_text(part, vocabulary, model.vectors))
    figures = {
        "tokens": sum(len(document) for document in documents),
        "pairs": len(pairs.weight),
        "loss": round(model.loss, 5),
    }
    return path, figures


def _write_text(path: Path, vocabulary: Sequence[str], vectors: Floats) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as stream:
        for word, vector in zip(vocabulary, vectors, strict=True):
            stream.write(word + " " + " ".join(f"{value:.5f}" for value in vector) + "\n")
