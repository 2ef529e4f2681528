"""Run the training loop: from a module, batches and settings to the best epoch's weights.

AdamW, a learning rate that rises and falls linearly, clipped gradients, half precision on GPUs, and
several processes. Batches depend only on the epoch's number, and a checkpoint has all else that the
rest of a training depends on, so a training that was killed ends with the same weights.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Literal, Protocol

import click
import torch
import torch.distributed
from accelerate.utils import send_to_device
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from transformers import get_linear_schedule_with_warmup

from fala.base.errors import printable
from fala.cli import progress
from fala_export.base.accelerator import torch_device
from fala_export.base.errors import ExportError
from fala_export.base.locks import locked_work
from fala_export.embedding.ranks import Ranks
from fala_export.recipe.training import LoopSettings
from fala_export.training import checkpoints

#: Set by ``accelerate launch --mixed_precision``; it counts on a CPU.
PRECISION_VARIABLE = "ACCELERATE_MIXED_PRECISION"

_CHECKPOINT_SECONDS = 120.0  # Seconds between checkpoints, in addition to those after each epoch.
_MOST_GRADIENT = 1.0  # Length to which longer gradients are cut.
# Names of parameters without weight decay, in addition to those of LayerNorm modules.
_NOT_DECAYED = re.compile(r"bias|layernorm|rmsnorm|(^|\.|_)norm($|\.)")
_DIGITS = 6


class Batches(Protocol):
    """Batches of examples, which are the same at every call, so that a training can be resumed."""

    def __len__(self) -> int:
        """Return the number of batches per epoch."""

    def batch(self, epoch: int, position: int) -> Mapping[str, Any]:
        """Return the arguments of the module's ``forward``: tensors, or mappings of tensors.

        Args:
            epoch: Number of the epoch, counted from 0.
            position: Position of the batch in the epoch.
        """


@dataclass(frozen=True)
class TrainingHistory:
    """The history of a training.

    Attributes:
        steps: Number of steps of AdamW.
        best_step: Step whose weights the module has; 0 is the start.
        validation: Loss on the validation examples by step, from step 0; empty without such
            examples.
        accuracy: Accuracy on the validation examples by step; only for a classifier.
        precision: Precision of the products, as accelerate names it.
    """

    steps: int
    best_step: int
    validation: dict[int, float]
    accuracy: dict[int, float] = field(default_factory=dict)
    precision: str = "no"

    @property
    def details(self) -> dict[str, Any]:
        """The history as details of a manifest."""

        def rounded(figures: Mapping[int, float]) -> dict[str, float]:
            return {str(step): round(figure, _DIGITS) for step, figure in figures.items()}

        details: dict[str, Any] = {
            "steps": self.steps,
            "best_step": self.best_step,
            "validation_loss": rounded(self.validation),
        }
        if self.precision != "no":
            details["mixed_precision"] = self.precision
        if self.accuracy:
            details["validation_accuracy"] = rounded(self.accuracy)
        return details


@dataclass(frozen=True)
class Training:
    """A training that can be resumed.

    Attributes:
        settings: The settings of the loop.
        folder: Folder of the checkpoints, which is created if it does not exist.
        seed: Seed of the module's dropout; batches have their own seeds.
        recipe: Everything else that the result depends on (data, model, batches), by readable
            names, as JSON values.
        resume: Continue from the folder's last complete checkpoint, if there is one.
    """

    settings: LoopSettings
    folder: Path
    seed: int
    recipe: Mapping[str, Any]
    resume: bool = False

    @property
    def provenance(self) -> dict[str, Any]:
        """Everything that the result depends on, for a manifest."""
        return {**self.recipe, **asdict(self.settings), "seed": self.seed}

    def open(self) -> None:
        """Open the folder, which is the first step of ``run``.

        Call it before long preparations, so that its errors come early.

        Raises:
            ExportError: The folder cannot be written, or has checkpoints although ``resume`` is
                false, or those of another training.
        """
        with locked_work(self.folder, first=Ranks().rank == 0):
            self._open()

    def run(
        self, module: nn.Module, batches: Batches, validation: Batches | None = None
    ) -> TrainingHistory:
        """Train a module in place; it ends on the CPU, in evaluation mode.

        A training that was killed at any time and resumed ends with the same weights as without the
        kill, on the same machine. If several processes train together, as started by ``accelerate
        launch`` or ``torchrun``, only the first returns.

        Args:
            module: A module whose ``forward`` takes a batch, and returns a mapping with ``loss`` (a
                scalar, the mean over the batch), ``weight`` (the batch's weight in the mean over
                batches) and, for a classifier, ``accuracy``. To resume, it must have the weights of
                the first start.
            batches: Batches to train on.
            validation: Batches with which the best epoch is chosen and training stops early; None
                uses the last epoch's weights.

        Raises:
            ExportError: The folder cannot be used (see ``open``) or is full, the training diverges,
                or memory runs out.
        """
        with locked_work(self.folder, first=Ranks().rank == 0):
            run = _Run(self, module, batches, validation)
            try:
                run.train(self._open())
            except torch.OutOfMemoryError as error:
                raise ExportError("out of memory on the GPU; use a smaller batch") from error
            _exit_other_processes()
        module.cpu().load_state_dict(run.weights)
        module.eval()
        return TrainingHistory(
            run.step, run.best_step, run.figures["loss"], run.figures["accuracy"], _precision()
        )

    def _open(self) -> dict[str, Any] | None:
        """Return the checkpoint to continue from; None for a new start."""
        checkpoint = checkpoints.read_newest(self.folder)
        if checkpoint is None:
            return None
        if not self.resume:
            raise ExportError(
                f"{self.folder}: has the checkpoints of a training; continue it with --resume, use "
                "another folder, or remove this one"
            )
        before, now = checkpoint["recipe"], self.whole_recipe()
        changed = [
            f"{name} was {before.get(name)!r}, but is {now.get(name)!r}"
            for name in sorted(before.keys() | now.keys())
            if before.get(name) != now.get(name)
        ]
        if changed:
            raise ExportError(
                f"{self.folder}: cannot be continued, because its checkpoints belong to another "
                f"training: {'; '.join(changed)}"
            )
        return checkpoint

    def whole_recipe(self) -> dict[str, Any]:
        """Return what a checkpoint depends on, which includes the processes and the precision."""
        recipe = self.provenance
        if Ranks().count > 1:
            recipe["processes"] = Ranks().count
        if _precision() != "no":
            recipe["precision"] = _precision()
        return recipe


class _Run:
    """A training's module, optimizer and figures, which change from step to step.

    Args:
        training: The training.
        module: The module, which is moved to the accelerator.
        batches: Batches to train on.
        validation: Batches to validate with after every epoch.

    Attributes:
        step: Number of steps of AdamW so far.
        figures: The loss and the accuracy on the validation examples, by step.
        weights: The module's weights at the best step.
    """

    def __init__(
        self, training: Training, module: nn.Module, batches: Batches, validation: Batches | None
    ) -> None:
        settings = training.settings
        self._training, self._settings = training, settings
        self._batches, self._validation = batches, validation
        self.step = 0
        self.figures: dict[str, dict[int, float]] = {"loss": {}, "accuracy": {}}
        self.weights = _copied(module)
        self._ranks = ranks = Ranks()
        # A step of each process has some passes, and each pass of each process has its own batch.
        self._rounds = math.ceil(len(batches) / ranks.count)
        self._passes = math.ceil(settings.passes / ranks.count)
        self._epoch_steps = math.ceil(self._rounds / self._passes)
        on_cpu = ranks.count > 1 and not torch.cuda.is_available()
        self._device = torch.device("cpu") if on_cpu else torch_device()
        self._module = module.to(self._device)
        self._model: Any = self._module
        if ranks.count > 1:
            ranks.wait()  # This connects the processes.
            # Only processes with rows of an annotator compute gradients of the annotator's head.
            self._model = DistributedDataParallel(module, find_unused_parameters=True)
        self._steps = settings.epochs * self._epoch_steps
        self._optimizer = torch.optim.AdamW(
            _groups(module), settings.learning_rate, weight_decay=settings.weight_decay, fused=True
        )
        self._schedule = get_linear_schedule_with_warmup(
            self._optimizer, math.ceil(settings.warm_up * self._steps), self._steps
        )
        parts = {"module": module, "optimizer": self._optimizer, "schedule": self._schedule}
        self._parts: dict[str, Any] = parts
        self._autocast = torch.autocast(
            self._device.type, torch.bfloat16, enabled=_precision() != "no"
        )

    @property
    def best_step(self) -> int:
        """The step of the best validation, the earliest of equals; the last without validation."""
        figures = self.figures[self._settings.best]
        choose = min if self._settings.best == "loss" else max
        return choose(figures, key=figures.__getitem__, default=self.step)

    def train(self, checkpoint: Mapping[str, Any] | None) -> None:
        """Train to the end, from a checkpoint or, if it is None, from the start."""
        torch.manual_seed(self._training.seed)
        if checkpoint is not None:
            self._continue(checkpoint)
            del checkpoint  # It is four times as large as the module.
        elif self._validation is not None:
            self._validate(self._validation)
        while self.step < self._steps and not self._is_over():
            self._epoch()
            if self._validation is not None:
                self._validate(self._validation)
            if self.best_step == self.step:
                self.weights = _copied(self._module)
            self._save()

    def _is_over(self) -> bool:
        """Return whether the last epochs were not better."""
        later = [step for step in self.figures["loss"] if step > self.best_step]
        return self._validation is not None and len(later) >= self._settings.patience

    def _epoch(self) -> None:
        """Train to the end of an epoch, and save checkpoints within a long one."""
        self._module.train()
        start, saved, loss = self.step, time.monotonic(), torch.zeros((), device=self._device)
        epoch, done = divmod(start, self._epoch_steps)
        title = f"epoch {epoch + 1} of {self._settings.epochs}"
        with progress(title, self._epoch_steps) as bar:
            bar.update(done)
            for left in reversed(range(self._epoch_steps - done)):
                loss += self._take_step()
                bar.update(1)
                # At the end of an epoch, the checkpoint waits for the validation, which it stores.
                # Several processes each have their own clock.
                due = time.monotonic() - saved >= _CHECKPOINT_SECONDS
                if due and left and self._ranks.count == 1:
                    self._save()
                    saved = time.monotonic()
        means = self._ranks.of_all(float(loss) / (self.step - start))
        self._tell("loss", sum(means) / len(means))

    def _take_step(self) -> torch.Tensor:
        """Take a step of AdamW, and return its loss."""
        epoch, number = divmod(self.step, self._epoch_steps)
        passes = range(self._rounds)[number * self._passes :][: self._passes]
        total = torch.zeros((), device=self._device)
        for each in passes:
            # If the last batches are fewer than the processes, the others take the first.
            position = (each * self._ranks.count + self._ranks.rank) % len(self._batches)
            more = each != passes[-1]  # Gradients of all processes are added with the last pass.
            alone = more and isinstance(self._model, DistributedDataParallel)
            with self._model.no_sync() if alone else nullcontext():
                batch = self._batches.batch(epoch, position)
                loss = self._output(self._model, batch)["loss"] / len(passes)
                loss.backward()
            total += loss.detach()
        nn.utils.clip_grad_norm_(self._module.parameters(), _MOST_GRADIENT)
        self._optimizer.step()
        self._schedule.step()
        self._optimizer.zero_grad()
        self.step += 1
        return total

    def _output(self, module: nn.Module, batch: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        """Return what the module returns for a batch."""
        with self._autocast:
            output = module(**send_to_device(batch, self._device))
        return {name: value.float() for name, value in output.items()}

    def _validate(self, batches: Batches) -> None:
        """Add the figures of the validation examples, which all processes share."""
        self._module.eval()
        outputs = []
        with torch.no_grad():
            for position in range(len(batches))[self._ranks.rank :: self._ranks.count]:
                output = self._output(self._module, batches.batch(0, position))
                outputs.append({name: float(value) for name, value in output.items()})
        parts = list(chain(*self._ranks.of_all(outputs)))
        weight = sum(part["weight"] for part in parts)
        for name, figures in self.figures.items():
            if name in parts[0]:
                figures[self.step] = sum(part[name] * part["weight"] for part in parts) / weight
                self._tell(f"validation {name}", figures[self.step])

    def _tell(self, title: str, figure: float) -> None:
        """Print a figure.

        Raises:
            ExportError: The figure is not finite.
        """
        if not math.isfinite(figure):
            raise ExportError(
                "the training diverges, because its loss is not finite; use a lower learning rate"
            )
        if self._ranks.rank == 0:
            epochs = f"epoch {self.step // self._epoch_steps} of {self._settings.epochs}"
            click.echo(f"{epochs}: {title} {figure:.4f}", err=True)

    def _save(self) -> None:
        """Write a checkpoint with everything that the rest of the training depends on."""
        random = {"cpu": torch.get_rng_state()}
        if self._device.type == "cuda":
            random["cuda"] = torch.cuda.get_rng_state(self._device)
        content = {
            "recipe": self._training.whole_recipe(),
            "step": self.step,
            "figures": self.figures,
            "weights": self.weights,
            "random": self._ranks.of_all(random),
            **{name: part.state_dict() for name, part in self._parts.items()},
        }
        if self._ranks.rank == 0:
            checkpoints.write(self._training.folder, self.step, content)

    def _continue(self, content: Mapping[str, Any]) -> None:
        """Continue from the content of a checkpoint."""
        self.step, self.figures = content["step"], content["figures"]
        self.weights = content["weights"]
        file = checkpoints.file_of(self._training.folder, self.step)
        click.echo(printable(f"continuing from {file}"), err=True)
        for name, part in self._parts.items():
            part.load_state_dict(content[name])
        random = content["random"][self._ranks.rank]
        torch.set_rng_state(random["cpu"])
        if self._device.type == "cuda":
            torch.cuda.set_rng_state(random["cuda"], self._device)


def _groups(module: nn.Module) -> list[dict[str, Any]]:
    """Return the trained parameters with and without weight decay, as AdamW takes them."""
    norms = [part for part in module.modules() if isinstance(part, nn.LayerNorm)]
    exempt = {weight for norm in norms for weight in norm.parameters()}
    trained = {name: weight for name, weight in module.named_parameters() if weight.requires_grad}
    exempt |= {trained[name] for name in trained if _NOT_DECAYED.search(name.lower())}
    return [
        {"params": [each for each in trained.values() if each not in exempt]},
        {"params": [each for each in trained.values() if each in exempt], "weight_decay": 0.0},
    ]


def _copied(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return a copy of the weights on the CPU."""
    return {name: value.to("cpu", copy=True) for name, value in module.state_dict().items()}


def _precision() -> Literal["no", "bf16"]:
    """Return the precision of products; ``"no"`` is float32 throughout.

    A GPU computes with bfloat16, which those without it emulate. A CPU does so only if
    ``PRECISION_VARIABLE`` is set, because only CPUs with instructions for bfloat16 (AMX,
    AVX512-BF16) become faster.

    Raises:
        ExportError: The variable has a value that a CPU does not support.
    """
    if torch.cuda.is_available():
        return "bf16"
    precision = os.environ.get(PRECISION_VARIABLE, "no")
    if precision == "bf16":
        return "bf16"
    if precision != "no":
        raise ExportError(f"{PRECISION_VARIABLE} must be bf16 or no without a GPU, not {precision}")
    return "no"


def _exit_other_processes() -> None:
    """Exit all processes except the first, after all have finished.

    Raises:
        click.exceptions.Exit: This is not the first process; the status is 0.
    """
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
    if Ranks().rank:
        raise click.exceptions.Exit(0)
    os.environ["WORLD_SIZE"] = "1"  # The first process continues alone.
