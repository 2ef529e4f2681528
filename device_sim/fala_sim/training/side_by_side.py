"""LoRA of many people at once: a pair of matrices for each person, one product for all.

A batch of one person leaves a GPU idle. Here each step takes the next batch of every person. The
frozen weights multiply all texts at once, and each text's differences are those of its person, as
in Chen et al., "Punica: Multi-Tenant LoRA Serving", MLSys 2024 (BGMV). Everything else is each
person's own: batches, loss, gradient clipping, learning rate and AdamW. So without dropout, which
draws once for all, the result is that of ``fala_sim.training.loop`` to rounding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from peft.tuners.lora import LoraLayer
from torch import Tensor, nn

import fala_export
from fala import DataError
from fala_export.accelerator import device
from fala_sim.situation import Example, Logits, Situation, distinct_texts
from fala_sim.training.loop import CLIP, UserBatches, head_inputs, losses_of, warm_up
from fala_sim.training.torch_flops import BATCH
from fala_sim.training.transformer import Adapt, open_encoder

#: One person's text.
_Text: TypeAlias = tuple[int, str]

_TOKENS = 8192  # of texts, with padding, whose activations are held at once
_FIRST, _SECOND, _EPSILON, _DECAY = 0.9, 0.999, 1e-8, 0.01  # as torch's AdamW


class SideBySide:
    """LoRA and heads of many people, trained together on the accelerator.

    Args:
        situations: Of the people: one release, one seed.
        folder: The transformer.
        adapt: Adds one person's LoRA; see ``fala_sim.methods.lora``.
        rate: The learning rate.

    Raises:
        DataError: If the people have different releases or seeds, or the folder is not a model
            that the method can train.
    """

    def __init__(
        self, situations: Sequence[Situation], folder: Path, adapt: Adapt, rate: float
    ) -> None:
        first, people = situations[0], len(situations)
        if len({(each.new.path, each.seed) for each in situations}) > 1:
            raise DataError("people train side by side from one release, with one seed")
        self._rate, self._head, self._rows = rate, first.new.head, _Rows()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(first.seed)
            self._encoder = open_encoder(folder, first.new.path)
            module = self._encoder.module
            module.transformer = adapt(module.transformer)
        for parent in list(module.modules()):
            for name, child in list(parent.named_children()):
                if isinstance(child, LoraLayer):
                    setattr(parent, name, _Pairs(child, people, self._rows))
        module.to(device())
        head = self._head
        self._weight = _repeated(torch.tensor(head.weight), people)
        self._bias = _repeated(torch.tensor(head.bias), people)
        query = torch.zeros(head.dimension) if head.query is None else torch.tensor(head.query)
        self._query = query.to(device())
        trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
        self._optimizer = _PeoplesAdamW([*trained, self._weight, self._bias])
        self._examples = [situation.user.train for situation in situations]
        self._batches = [UserBatches(situation, self._encoder) for situation in situations]
        self._epochs = 0

    def epoch(self) -> None:
        """Train every person on all of its examples once."""
        module = self._encoder.module.train()
        divided = [batches.of_epoch(self._epochs) for batches in self._batches]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(divided[0][0])
            for step in range(max(len(batches) for _, batches in divided)):
                people = [p for p, (_, batches) in enumerate(divided) if step < len(batches)]
                for chunk in self._chunks({p: divided[p][1][step] for p in people}):
                    torch.autograd.backward(self._loss(chunk))
                counts = [len(divided[person][1]) for person in people]
                rates = [
                    self._rate * warm_up(self._epochs * count + step + 1, count) for count in counts
                ]
                self._optimizer.step(people, rates)
        self._epochs += 1
        module.eval()

    def scores(self, person: int, examples: Sequence[Example]) -> Logits:
        """Logits (n, C) of one person's current model."""
        texts = distinct_texts(examples)
        ids = self._encoder.token_ids(texts, self._encoder.longest)
        tokens = {(person, text): each for text, each in zip(texts, ids, strict=True)}
        parts = [np.empty((0, len(self._head.bias)))]
        with torch.inference_mode():
            for start in range(0, len(examples), BATCH):
                batch = {person: examples[start : start + BATCH]}
                parts.append(self._logits(batch, tokens)[person].cpu().numpy())
        return np.concatenate(parts).astype(np.float64)

    def _chunks(self, rows: Mapping[int, Any]) -> Iterator[dict[int, Any]]:
        """The people's rows in parts whose activations fit into memory."""
        chunk: dict[int, Any] = {}
        texts = longest = 0
        for person, own in rows.items():
            tokens = self._batches[person].tokens
            examples = [self._examples[person][row] for row in own]
            lengths = [len(tokens[text]) for text in distinct_texts(examples)]
            texts, longest = texts + len(lengths), max(longest, *lengths)
            if chunk and texts * longest > _TOKENS:
                yield chunk
                chunk, texts, longest = {}, len(lengths), max(lengths)
            chunk[person] = own
        yield chunk

    def _loss(self, rows: Mapping[int, Any]) -> Tensor:
        """The sum of the people's mean losses: each has a gradient of its own."""
        examples = {p: [self._examples[p][row] for row in own] for p, own in rows.items()}
        tokens = {(p, text): ids for p in rows for text, ids in self._batches[p].tokens.items()}
        logits = self._logits(examples, tokens)
        losses = [
            losses_of(self._head, logits[p], self._batches[p].shares[own]).mean()
            for p, own in rows.items()
        ]
        return torch.stack(losses).sum()

    def _logits(
        self, people: Mapping[int, Sequence[Example]], tokens: Mapping[_Text, list[int]]
    ) -> dict[int, Tensor]:
        """Logits (n, C) of each person's n examples; each of a person's texts is embedded once."""
        texts = [(p, text) for p, examples in people.items() for text in distinct_texts(examples)]
        ids, mask = fala_export.pad([tokens[text] for text in texts], self._encoder.pad_id)
        self._rows.people = torch.tensor([person for person, _ in texts], device=device())
        vectors = self._encoder.module(ids.to(device()), mask.to(device()))
        own: dict[int, dict[str, int]] = {person: {} for person in people}
        for row, (person, text) in enumerate(texts):
            own[person][text] = row
        weights, biases = self._weight.unbind(), self._bias.unbind()
        return {
            p: head_inputs(examples, vectors, own[p], self._query) @ weights[p].T + biases[p]
            for p, examples in people.items()
        }


class _Rows:
    """Whose text each row of the current batch is.

    Attributes:
        people: Shape (n,).
    """

    people: Tensor


class _Pairs(nn.Module):
    """A frozen layer, and for each person p the difference ``scale * B_p A_p``.

    Args:
        lora: peft's layer of one person, with the initial pair.
        people: Number of people.
        rows: Whose text each row is.
    """

    def __init__(self, lora: LoraLayer, people: int, rows: _Rows) -> None:
        super().__init__()
        (name,) = lora.lora_A
        self.layer, self._rows, self._scale = lora.base_layer, rows, float(lora.scaling[name])
        self.down = _repeated(lora.lora_A[name].weight, people)
        self.up = _repeated(lora.lora_B[name].weight, people)

    def forward(self, states: Tensor) -> Tensor:
        """States (n, length, d) of n texts to (n, length, d').

        Raises:
            DataError: The layer is given anything but the texts' states.
        """
        people = self._rows.people
        if len(states) != len(people):
            raise DataError(
                "this kind of transformer shares layers between texts and positions (DeBERTa); "
                "train its people one by one"
            )
        inner = torch.bmm(states, self.down[people].mT)
        result: Tensor = self.layer(states) + self._scale * torch.bmm(inner, self.up[people].mT)
        return result


class _PeoplesAdamW:
    """torch's AdamW with clipped gradients, for each person by itself.

    Args:
        parameters: Each with a person a row.
    """

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self._parameters = list(parameters)
        self._moments = [[torch.zeros_like(p) for p in self._parameters] for _ in range(2)]
        self._steps = torch.zeros(len(self._parameters[0]), device=device())

    @torch.no_grad()
    def step(self, people: Sequence[int], rates: Sequence[float]) -> None:
        """Change some people's parameters by their gradients, and clear all gradients.

        Args:
            people: Numbers of k people.
            rates: Their learning rates, k.
        """
        rows = torch.tensor(people, device=device())
        rate = torch.tensor(rates, device=device())
        gradients = [_gradient(parameter)[rows] for parameter in self._parameters]
        squares = [gradient.flatten(1).square().sum(dim=1) for gradient in gradients]
        clip = (CLIP / (torch.stack(squares).sum(dim=0).sqrt() + 1e-6)).clamp(max=1.0)
        self._steps[rows] += 1
        steps = self._steps[rows]
        for gradient, parameter, first, second in zip(
            gradients, self._parameters, *self._moments, strict=True
        ):
            # From (k,) to the parameter's shape.
            clip_, rate_, steps_ = (
                each.view(-1, *[1] * (gradient.dim() - 1)) for each in (clip, rate, steps)
            )
            clipped = gradient * clip_
            first[rows] = _FIRST * first[rows] + (1 - _FIRST) * clipped
            second[rows] = _SECOND * second[rows] + (1 - _SECOND) * clipped.square()
            scale = (second[rows] / (1 - _SECOND**steps_)).sqrt() + _EPSILON
            change = first[rows] / (1 - _FIRST**steps_) / scale
            parameter[rows] = parameter[rows] * (1 - rate_ * _DECAY) - rate_ * change
            parameter.grad = None


def _gradient(parameter: nn.Parameter) -> Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad


def _repeated(tensor: Tensor, people: int) -> nn.Parameter:
    """A copy for each person, shape (people, ...), on the accelerator."""
    copies = tensor.detach().expand(people, *tensor.shape).to(device(), copy=True).contiguous()
    return nn.Parameter(copies)
