"""Run the training loop: from a module, batches and settings to the best epoch's weights.

``transformers.Trainer`` is the loop: AdamW, linear warm-up and decay, clipped gradients, half
precision, checkpoints and resuming, and several processes through accelerate. This module adds the
batches, which depend only on the epoch's number, checkpoints within long epochs, and the choice of
the best epoch by the checkpoint's own history.
"""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal, Protocol

import click
import torch
import torch.distributed
from accelerate.utils import gather_object
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn
from torch.utils.data import DataLoader, Dataset
from transformers import (
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from fala.base.errors import printable
from fala.cli import progress
from fala_export.base.errors import ExportError
from fala_export.base.locks import locked_work
from fala_export.base.quiet import first_line
from fala_export.embedding.ranks import Ranks
from fala_export.recipe.training import Best, LoopSettings
from fala_export.training import checkpoints

#: Set by ``accelerate launch --mixed_precision``; the Trainer reads it on a CPU.
PRECISION_VARIABLE = "ACCELERATE_MIXED_PRECISION"

_CHECKPOINT_SECONDS = 120.0  # Seconds between checkpoints, in addition to those after each epoch.
# Number of checkpoints: the best, the newest, and the previous one while the newest is being
# written.
_KEPT = 3
_DIGITS = 6
_TITLES = {
    "loss": "loss",
    "eval_loss": "validation loss",
    "eval_accuracy": "validation accuracy",
}


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
            ExportError: The folder cannot be used; see ``checkpoints.open_work``.
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
            checkpoint = self._open()
            start = {name: value.clone() for name, value in module.state_dict().items()}
            try:
                state = self._run(module, batches, validation, checkpoint)
            except torch.OutOfMemoryError as error:
                raise ExportError("out of memory on the GPU; use a smaller batch") from error
            _exit_other_processes()
            steps = int(state.global_step)
            best_step = _best_step(state, self.settings.best)
            best = steps if best_step is None else best_step
            saved = self.folder / f"{PREFIX_CHECKPOINT_DIR}-{best}"
            if best and checkpoints.state_of(saved) is None:
                raise ExportError(f"{saved}: is damaged; remove {self.folder}, and start again")
            weights = load_file(saved / "model.safetensors") if best else start
        module.cpu().load_state_dict(weights)
        module.eval()
        loss, accuracy = _validated(state, "loss"), _validated(state, "accuracy")
        return TrainingHistory(steps, best, loss, accuracy, _precision())

    def _open(self) -> Path | None:
        recipe = self.provenance
        if Ranks().count > 1:
            recipe["processes"] = Ranks().count
        if _precision() != "no":
            recipe["precision"] = _precision()
        return checkpoints.open_work(self.folder, recipe, self.resume)

    def _run(
        self,
        module: nn.Module,
        batches: Batches,
        validation: Batches | None,
        checkpoint: Path | None,
    ) -> TrainerState:
        """Train to the end; the module keeps the weights of the last step."""
        trainer = _Trainer(
            model=module,
            args=self._arguments(len(batches), validation, checkpoint),
            train_dataset=_Epochs(batches),
            eval_dataset=validation,
        )
        trainer.remove_callback(PrinterCallback)
        trainer.add_callback(_Flow(self.settings))
        if checkpoint is not None:
            click.echo(printable(f"continuing from {checkpoint}"), err=True)
            # The checkpoint may be of the last step, if the training was killed after it.
            state = checkpoints.state_of(checkpoint)
            if state is not None and (
                state.global_step >= state.max_steps or _is_over(state, self.settings)
            ):
                return state
        with warnings.catch_warnings():
            # This warning is about checkpoints written within a second, which are then sorted by
            # number.
            warnings.filterwarnings("ignore", "mtime may not be reliable")
            try:
                trainer.train(resume_from_checkpoint=checkpoint and str(checkpoint))
            # If the disk is full, torch raises a RuntimeError with an unrelated message.
            except (OSError, RuntimeError, SafetensorError) as error:
                if not checkpoints.is_unfinished(self.folder):
                    raise
                reason = (isinstance(error, OSError) and error.strerror) or first_line(error)
                raise ExportError(
                    f"{self.folder}: a checkpoint cannot be written; check whether the disk is "
                    f"full ({reason})"
                ) from error
        return trainer.state

    def _arguments(
        self, batches: int, validation: Batches | None, checkpoint: Path | None
    ) -> TrainingArguments:
        settings, on_gpu = self.settings, torch.cuda.is_available()
        passes = math.ceil(settings.passes / Ranks().count)
        steps = settings.epochs * math.ceil(batches / Ranks().count / passes)
        return _Arguments(
            output_dir=str(self.folder),
            num_train_epochs=settings.epochs,
            per_device_train_batch_size=1,  # One of our batches is one item.
            gradient_accumulation_steps=passes,
            learning_rate=settings.learning_rate,
            warmup_steps=math.ceil(settings.warm_up * steps),
            weight_decay=settings.weight_decay,
            eval_strategy="no" if validation is None else "epoch",
            eval_on_start=validation is not None and checkpoint is None,
            metric_for_best_model=None if validation is None else settings.best,
            save_strategy="epoch",
            save_total_limit=_KEPT,
            logging_strategy="epoch",
            logging_nan_inf_filter=False,
            bf16=on_gpu,
            seed=self.seed,
            # Otherwise processes on a machine without GPUs would each train alone.
            use_cpu=Ranks().count > 1 and not on_gpu,
            # Only processes with rows of an annotator compute gradients of the annotator's head.
            ddp_find_unused_parameters=Ranks().count > 1,
            report_to="none",
            disable_tqdm=True,
            remove_unused_columns=False,
        )


def _precision() -> Literal["no", "bf16"]:
    """Return the precision of products; ``"no"`` is float32 throughout.

    A GPU computes in bfloat16, which older ones emulate. A CPU does so only if
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


def _validated(state: TrainerState, metric: Best) -> dict[int, float]:
    """Return a figure of the validation examples by step; empty if there are none."""
    name = f"eval_{metric}"
    return {entry["step"]: entry[name] for entry in state.log_history if name in entry}


def _best_step(state: TrainerState, metric: Best) -> int | None:
    """Return the step of the best validation, the earliest of equals; None without validation."""
    figures = _validated(state, metric)
    if not figures:
        return None
    return (min if metric == "loss" else max)(figures, key=figures.__getitem__)


def _is_over(state: TrainerState, settings: LoopSettings) -> bool:
    steps = list(_validated(state, settings.best))
    best = _best_step(state, settings.best)
    return best is not None and len(steps) - 1 - steps.index(best) >= settings.patience


class _Epochs(Dataset[Mapping[str, Any]]):
    """A data set of one epoch at a time, whose items are batches; accelerate sets the epoch."""

    def __init__(self, batches: Batches) -> None:
        self._batches = batches
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch

    def __len__(self) -> int:
        return len(self._batches)

    def __getitem__(self, position: int) -> Mapping[str, Any]:
        return self._batches.batch(self._epoch, position)


class _Trainer(Trainer):  # type: ignore[misc]  # mypy does not look into transformers
    state: TrainerState
    control: TrainerControl
    model: nn.Module

    def get_train_dataloader(self) -> DataLoader[Mapping[str, Any]]:
        loader = DataLoader(
            self.train_dataset,
            batch_size=1,
            collate_fn=itemgetter(0),
            # Otherwise the sampler draws from the global generator once per epoch.
            generator=torch.Generator(),
        )
        return self.accelerator.prepare(loader)  # Each process gets its share.

    def evaluate(self, **_: object) -> dict[str, float]:
        shares: list[dict[str, float]] = []
        self.model.eval()
        first, step = self.accelerator.process_index, self.accelerator.num_processes
        with torch.no_grad(), self.compute_loss_context_manager():
            for position in range(first, len(self.eval_dataset), step):
                output = self.model(**self._prepare_inputs(self.eval_dataset.batch(0, position)))
                names = output.keys() & {"weight", "loss", "accuracy"}
                shares.append({name: float(output[name]) for name in names})
        parts = gather_object(shares)  # The shares come from all processes.
        weight = sum(part["weight"] for part in parts)
        totals: dict[str, float] = {}
        for part in parts:
            for name in part.keys() - {"weight"}:
                totals[name] = totals.get(name, 0.0) + part[name] * part["weight"]
        self.model.train()
        metrics = {f"eval_{name}": total / weight for name, total in totals.items()}
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(
            self.args, self.state, self.control, metrics
        )
        return metrics


class _Arguments(TrainingArguments):  # type: ignore[misc]  # mypy does not look into transformers
    @property
    def n_gpu(self) -> int:
        # Several GPUs would each get a slice of every tensor, but batches here are not row by row.
        return min(super().n_gpu, 1)


class _Flow(TrainerCallback):  # type: ignore[misc]  # mypy does not look into transformers
    """A callback that saves checkpoints within long epochs, stops early, and shows progress."""

    def __init__(self, settings: LoopSettings) -> None:
        self._settings = settings
        self._last_save = time.monotonic()
        self._steps = 0

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        self._steps = state.max_steps // state.num_train_epochs
        number, done = divmod(state.global_step, self._steps)
        self._progress = progress(f"epoch {number + 1} of {state.num_train_epochs}", self._steps)
        self._bar = self._progress.__enter__()
        self._bar.update(done)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        self._bar.update(1)
        # At the end of an epoch, the checkpoint waits for the validation, which it stores.
        due = time.monotonic() - self._last_save >= _CHECKPOINT_SECONDS
        due = due and Ranks().count == 1  # Several processes each have their own clock.
        if due and state.global_step % self._steps:
            control.should_save = True

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        self._progress.__exit__(None, None, None)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, float],
        **_: object,
    ) -> None:
        for name, title in _TITLES.items():
            if name not in logs:
                continue
            if not math.isfinite(logs[name]):
                raise ExportError(
                    "the training diverges, because its loss is not finite; use a lower "
                    "learning rate"
                )
            if Ranks().rank == 0:
                epochs = f"epoch {state.epoch or 0:.0f} of {state.num_train_epochs}"
                click.echo(f"{epochs}: {title} {logs[name]:.4f}", err=True)

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        if _is_over(state, self._settings):
            control.should_training_stop = True

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        self._last_save = time.monotonic()
        if Ranks().rank == 0:
            checkpoints.seal(Path(args.output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}")
