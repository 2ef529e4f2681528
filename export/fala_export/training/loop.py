"""The training loop: a module, batches and settings in; the best epoch's weights out.

``transformers.Trainer`` is the loop: AdamW, linear warm-up and decay, clipped gradients, half
precision, checkpoints and their resuming, and several processes through accelerate. Ours are the
batches, which depend on the epoch's number alone, checkpoints within long epochs, and the choice of
the best epoch by what the checkpoint itself remembers.
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

from fala import ExportError
from fala.cli.progress import progress
from fala_export.training import checkpoints
from fala_export.training.settings import Best, LoopSettings

#: What ``accelerate launch --mixed_precision`` sets, and the Trainer reads on a processor.
PRECISION_VARIABLE = "ACCELERATE_MIXED_PRECISION"

_CHECKPOINT_SECONDS = 120.0  # between checkpoints; there is one after each epoch besides
_KEPT = 3  # checkpoints: the best, the newest, and one before it while that is being written
_SHOWN = {
    "loss": "loss",
    "eval_loss": "validation loss",
    "eval_accuracy": "validation accuracy",
}


class Batches(Protocol):
    """Examples in batches: the same at every call, so that a training can be continued."""

    def __len__(self) -> int:
        """Batches an epoch."""

    def batch(self, epoch: int, position: int) -> Mapping[str, Any]:
        """The arguments of the module's ``forward``: tensors, or mappings of them.

        Args:
            epoch: Counted from 0.
            position: In the epoch.
        """


@dataclass(frozen=True)
class History:
    """How a training went.

    Attributes:
        steps: Steps of AdamW that were made.
        best_step: The step whose weights the module has now; 0 is where it started.
        validation: Loss on the validation examples by step, from 0 on; empty without any.
        accuracy: The same of the accuracy, of a classifier alone.
        precision: What its products were computed in, in accelerate's words.
    """

    steps: int
    best_step: int
    validation: dict[int, float]
    accuracy: dict[int, float] = field(default_factory=dict)
    precision: str = "no"


@dataclass(frozen=True)
class Training:
    """A training that can be continued.

    Attributes:
        settings: How a module is trained.
        folder: Of the checkpoints; made if missing.
        seed: Of what the module draws (dropout). Batches have their own.
        recipe: What else the result depends on (data, model, batches), by names for people, as
            JSON can hold it.
        resume: Continue from the folder's last whole checkpoint, if there is one.
    """

    settings: LoopSettings
    folder: Path
    seed: int
    recipe: Mapping[str, Any]
    resume: bool = False

    @property
    def noted(self) -> dict[str, Any]:
        """All that the result depends on, for a manifest."""
        return {**self.recipe, **asdict(self.settings), "seed": self.seed}

    def open(self) -> None:
        """Open the folder: what ``run`` does first.

        Whoever has long preparations calls it before them, so that a refusal does not wait.

        Raises:
            ExportError: See ``checkpoints.open_work``.
        """
        with checkpoints.alone(self.folder, _is_first()):
            self._open()

    def run(
        self, module: nn.Module, batches: Batches, validation: Batches | None = None
    ) -> History:
        """Train a module in place; it ends on the CPU, in evaluation mode.

        A training that was killed at any instant and resumed ends with the weights that it would
        have had on the same machine. Of several processes that train together, as ``accelerate
        launch`` and ``torchrun`` start them, the first alone comes back.

        Args:
            module: Its ``forward`` takes a batch, and gives a mapping of ``loss`` (a scalar, the
                mean over the batch) and ``weight`` (how much the batch counts in the mean over
                batches); a classifier's of ``accuracy`` too.
                On a resume it must come with the weights that it was first started with.
            batches: To train on.
            validation: To choose the best epoch on, and to stop early; None takes the last epoch's
                weights.

        Raises:
            ExportError: The folder cannot be used (see ``open``), or is full, or the training
                diverges or needs more memory than there is.
        """
        with checkpoints.alone(self.folder, _is_first()):
            checkpoint = self._open()
            start = {name: value.clone() for name, value in module.state_dict().items()}
            try:
                state = self._run(module, batches, validation, checkpoint)
            except torch.OutOfMemoryError as error:
                raise ExportError("out of memory on the GPU; try a smaller batch") from error
            _leave_the_rest_to_the_first()
            steps = int(state.global_step)
            best_step = _best_step(state, self.settings.best)
            best = steps if best_step is None else best_step
            saved = self.folder / f"{PREFIX_CHECKPOINT_DIR}-{best}" / "model.safetensors"
            weights = start if best == 0 else load_file(saved)
        module.cpu().load_state_dict(weights)
        module.eval()
        loss, accuracy = _validated(state, "loss"), _validated(state, "accuracy")
        return History(steps, best, loss, accuracy, _precision())

    def _open(self) -> Path | None:
        recipe = self.noted
        if _processes() > 1:
            recipe["processes"] = _processes()
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
        """Train to the end. The module is left as the last step made it."""
        trainer = _Trainer(
            model=module,
            args=self._arguments(validation, checkpoint),
            train_dataset=_Epochs(batches),
            eval_dataset=validation,
        )
        trainer.remove_callback(PrinterCallback)
        trainer.add_callback(_Flow(self.settings))
        if checkpoint is not None:
            click.echo(f"continuing from {checkpoint}", err=True)
            # It may be the last one, of a training that was killed after it.
            state = checkpoints.state_of(checkpoint)
            if state is not None and (
                state.global_step >= state.max_steps or _is_over(state, self.settings)
            ):
                return state
        with warnings.catch_warnings():
            # Of checkpoints written within a second, which it then sorts by their numbers.
            warnings.filterwarnings("ignore", "mtime may not be reliable")
            trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
        return trainer.state

    def _arguments(self, validation: Batches | None, checkpoint: Path | None) -> TrainingArguments:
        settings, on_gpu = self.settings, torch.cuda.is_available()
        arguments = TrainingArguments(
            output_dir=str(self.folder),
            num_train_epochs=settings.epochs,
            per_device_train_batch_size=1,  # a batch of ours is one item
            learning_rate=settings.learning_rate,
            warmup_ratio=settings.warm_up,
            weight_decay=settings.weight_decay,
            eval_strategy="no" if validation is None else "epoch",
            eval_on_start=validation is not None and checkpoint is None,
            metric_for_best_model=None if validation is None else settings.best,
            save_strategy="epoch",
            save_total_limit=_KEPT,
            logging_strategy="epoch",
            logging_nan_inf_filter=False,
            bf16=on_gpu and _precision() == "bf16",
            fp16=on_gpu and _precision() == "fp16",
            seed=self.seed,
            # Without it processes on a machine without GPUs would each train alone.
            use_cpu=_processes() > 1 and not on_gpu,
            # An annotator's own head learns from the processes alone that have rows of theirs.
            ddp_find_unused_parameters=_processes() > 1,
            report_to="none",
            disable_tqdm=True,
            remove_unused_columns=False,
        )
        # Several GPUs would each get a slice of every tensor; batches here are no stacks of rows.
        arguments._n_gpu = min(arguments.n_gpu, 1)
        return arguments


def _precision() -> Literal["no", "bf16", "fp16"]:
    """What products are computed in; ``"no"`` is float32 throughout.

    A GPU computes in half precision, bfloat16 where it can. A processor does so where
    ``PRECISION_VARIABLE`` asks for it, since only one with instructions for bfloat16 (AMX,
    AVX512-BF16) gains by it.

    Raises:
        ExportError: The variable asks for what a processor cannot do.
    """
    if torch.cuda.is_available():
        return "bf16" if torch.cuda.is_bf16_supported() else "fp16"
    asked = os.environ.get(PRECISION_VARIABLE, "no")
    if asked == "bf16":
        return "bf16"
    if asked != "no":
        raise ExportError(f"{PRECISION_VARIABLE}={asked}: without a GPU it is bf16, or no")
    return "no"


def _processes() -> int:
    """How many processes train together; 1 where nothing started several."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def _is_first() -> bool:
    """Whether this process is the one that writes and tells."""
    return int(os.environ.get("RANK", "0")) == 0


def _leave_the_rest_to_the_first() -> None:
    """End all processes but the first, once all have come here.

    Raises:
        click.exceptions.Exit: This is another one; all is well.
    """
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
    if not _is_first():
        raise click.exceptions.Exit(0)


def _validated(state: TrainerState, metric: Best) -> dict[int, float]:
    """A figure of the validation examples by step; empty where there is none."""
    name = f"eval_{metric}"
    return {entry["step"]: entry[name] for entry in state.log_history if name in entry}


def _best_step(state: TrainerState, metric: Best) -> int | None:
    """The step of the best validation, the earliest of equals; None without any."""
    figures = _validated(state, metric)
    if not figures:
        return None
    return (min if metric == "loss" else max)(figures, key=figures.__getitem__)


def _is_over(state: TrainerState, settings: LoopSettings) -> bool:
    steps = list(_validated(state, settings.best))
    best = _best_step(state, settings.best)
    return best is not None and len(steps) - 1 - steps.index(best) >= settings.patience


class _Epochs(Dataset[Mapping[str, Any]]):
    """One epoch at a time, a batch an item; accelerate says which epoch it is."""

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
            # One of its own: else it draws from the global one, once an epoch.
            generator=torch.Generator(),
        )
        return self.accelerator.prepare(loader)  # which gives each process its share

    def evaluate(self, **_: object) -> dict[str, float]:
        totals: dict[str, float] = {}
        weight = 0.0
        self.model.eval()
        with torch.no_grad(), self.compute_loss_context_manager():
            for position in range(len(self.eval_dataset)):
                output = self.model(**self._prepare_inputs(self.eval_dataset.batch(0, position)))
                counts = float(output["weight"])
                weight += counts
                for name in output.keys() & {"loss", "accuracy"}:
                    totals[name] = totals.get(name, 0.0) + float(output[name]) * counts
        self.model.train()
        metrics = {f"eval_{name}": total / weight for name, total in totals.items()}
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(
            self.args, self.state, self.control, metrics
        )
        return metrics

    def _save_checkpoint(self, *arguments: object) -> None:
        try:
            super()._save_checkpoint(*arguments)
        # Of a full disk torch makes a RuntimeError, with a message that does not say so.
        except (OSError, RuntimeError, SafetensorError) as error:
            reason = (isinstance(error, OSError) and error.strerror) or str(error).splitlines()[0]
            raise ExportError(
                f"{self.args.output_dir}: a checkpoint cannot be written, is the disk full? "
                f"({reason})"
            ) from error


class _Flow(TrainerCallback):  # type: ignore[misc]  # as above
    """Makes checkpoints within long epochs, stops early, and shows progress."""

    def __init__(self, settings: LoopSettings) -> None:
        self._settings = settings
        self._saved = time.monotonic()
        self._steps = 0

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        self._steps = state.max_steps // state.num_train_epochs
        number, done = divmod(state.global_step, self._steps)
        self._shown = progress(f"epoch {number + 1} of {state.num_train_epochs}", self._steps)
        self._bar = self._shown.__enter__()
        self._bar.update(done)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        self._bar.update(1)
        # At the end of an epoch it waits for the validation, which a checkpoint has to know.
        due = time.monotonic() - self._saved >= _CHECKPOINT_SECONDS
        due = due and _processes() == 1  # several processes have clocks of their own
        if due and state.global_step % self._steps:
            control.should_save = True

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        self._shown.__exit__(None, None, None)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, float],
        **_: object,
    ) -> None:
        for name, words in _SHOWN.items():
            if name not in logs:
                continue
            if not math.isfinite(logs[name]):
                raise ExportError(
                    "the training diverges: its loss is no number any more; "
                    "try a lower learning rate"
                )
            if _is_first():
                epochs = f"epoch {state.epoch or 0:.0f} of {state.num_train_epochs}"
                click.echo(f"{epochs}: {words} {logs[name]:.4f}", err=True)

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        if _is_over(state, self._settings):
            control.should_training_stop = True

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        self._saved = time.monotonic()
