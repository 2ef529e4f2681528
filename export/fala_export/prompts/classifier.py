"""The task: a writer's label of a text, by one backbone and one head for all writers."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from fala import Head
from fala.release import CLASSIFICATION
from fala_export.progress import progress
from fala_export.prompts.encoder import PromptedEncoder
from fala_export.prompts.inputs import Inputs
from fala_export.training.classifier import BIAS_PACE

_BATCH = 32


class PromptedClassifier(nn.Module):
    """A prompted backbone with a head: z = w . h(x, writer) + b, and the writer's bias if asked.

    Args:
        prompted: The backbone with its prompts.
        head: Where the head starts.
        biases: Writers with a bias of their own; 0 for a kind without.
    """

    def __init__(self, prompted: PromptedEncoder, head: Head, biases: int = 0) -> None:
        super().__init__()
        self.prompted = prompted
        self.labels = head.labels
        self.weight = nn.Parameter(torch.from_numpy(head.weight.copy()))
        self.bias = nn.Parameter(torch.from_numpy(head.bias.copy()))
        if biases:
            self.own_bias = nn.Parameter(torch.zeros(biases + 1, *head.bias.shape))

    def answers(self, writers: Tensor, **inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Z and h of texts, (n, C) and (n, dim); arguments as of ``PromptedEncoder.states``."""
        embeddings = self.prompted(writers=writers, **inputs)
        logits = embeddings @ self.weight.T + self.bias
        if hasattr(self, "own_bias"):
            logits = logits + BIAS_PACE * self.own_bias[writers.clamp(min=0)]
        return logits, embeddings

    def forward(self, shares: Tensor, **inputs: Tensor) -> dict[str, Tensor]:
        """The loss over rows.

        Args:
            shares: Of the labels, 0 or 1, shape (n, C); of the second label alone where C = 1.
            inputs: As of ``answers``.
        """
        logits, _ = self.answers(**inputs)
        if logits.shape[1] == 1:
            loss = functional.binary_cross_entropy_with_logits(logits, shares)
        else:
            loss = functional.cross_entropy(logits, shares)
        return {"loss": loss, "weight": torch.tensor(float(len(shares)))}

    @property
    def head(self) -> Head:
        """The head as the SDK computes it."""
        parts = (self.weight.detach().numpy().copy(), self.bias.detach().numpy().copy())
        return Head(CLASSIFICATION, self.labels, *parts)


def predict(
    module: PromptedClassifier, inputs: Inputs, numbers: list[int], label: str
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Logits (n, C) and embeddings (n, dim) of rows, each after the prompt of a writer.

    Args:
        module: In evaluation mode.
        inputs: n rows.
        numbers: Whose prompts, row by row.
        label: Of the progress.
    """
    logits = np.empty((len(inputs), len(module.bias)), dtype=np.float32)
    embeddings = np.empty((len(inputs), module.weight.shape[1]), dtype=np.float32)
    lengths = inputs.lengths
    distinct, places = inputs.distinct(numbers)
    order = sorted(distinct, key=lengths.__getitem__)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    module.to(device)
    with torch.inference_mode(), progress(label, len(order)) as bar:
        for start in range(0, len(order), _BATCH):
            chosen = order[start : start + _BATCH]
            batch = inputs.take(chosen, [numbers[row] for row in chosen])
            moved = {name: value.to(device) for name, value in batch.items()}
            found = module.answers(**moved)
            logits[chosen], embeddings[chosen] = (part.cpu().numpy() for part in found)
            bar.update(len(chosen))
    module.cpu()
    of = np.asarray(distinct, dtype=np.int64)[places]
    return logits[of], embeddings[of]
