"""``transformers.Trainer``, made to resume exactly and to say little.

AdamW, linear warm-up and decay, clipped gradients, half precision on a GPU that has it, and the
files of a checkpoint are the Trainer's. Ours are the batches, which depend on the epoch's number
alone, the sealing of checkpoints, and early stopping by what the checkpoint itself remembers.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import torch
from safetensors import SafetensorError
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

from fala import ExportError
from fala_export.progress import progress
from fala_export.training import checkpoints, ranks
from fala_export.training.precision import precision

if TYPE_CHECKING:
    from fala_export.training.batches import Batches
    from fala_export.training.settings import Best, LoopSettings

_CHECKPOINT_SECONDS = 120.0  # between checkpoints; there is one after each epoch besides
_KEPT = 3  # checkpoints: the best, the newest, and one before it while that is being written


def run(
    module: nn.Module,
    batches: Batches,
    validation: Batches | None,
    settings: LoopSettings,
    folder: Path,
    seed: int,
    checkpoint: Path | None,
) -> TrainerState:
    """Train to the end; see ``loop.train_module``. The module is left as the last step made it."""
    trainer = _Trainer(
        model=module,
        args=_arguments(settings, folder, seed, validation, checkpoint),
        train_dataset=_Epochs(batches),
        eval_dataset=validation,
    )
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(_Flow(folder, settings))
    if checkpoint is not None:
        click.echo(f"continuing from {checkpoint}", err=True)
        # It may be the last one, of a training that was killed after it.
        state = TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
        if state.global_step >= state.max_steps or _is_over(state, settings):
            return state
    with warnings.catch_warnings():
        # Of checkpoints written within a second, which it then sorts by their numbers.
        warnings.filterwarnings("ignore", "mtime may not be reliable")
        trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    return trainer.state


def validated(state: TrainerState, metric: Best) -> dict[int, float]:
    """A figure of the validation examples by step; empty where there is none."""
    name = f"eval_{metric}"
    return {entry["step"]: entry[name] for entry in state.log_history if name in entry}


def best_step(state: TrainerState, metric: Best) -> int | None:
    """The step of the best validation, the earliest of equals; None without any."""
    figures = validated(state, metric)
    if not figures:
        return None
    return (min if metric == "loss" else max)(figures, key=figures.__getitem__)


def _is_over(state: TrainerState, settings: LoopSettings) -> bool:
    steps = list(validated(state, settings.best))
    best = best_step(state, settings.best)
    return best is not None and len(steps) - 1 - steps.index(best) >= settings.patience


def _arguments(
    settings: LoopSettings,
    folder: Path,
    seed: int,
    validation: Batches | None,
    checkpoint: Path | None,
) -> TrainingArguments:
    on_gpu = torch.cuda.is_available()
    arguments = TrainingArguments(
        output_dir=str(folder),
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
        # On a processor the Trainer takes it from the variable that ``precision`` looks at.
        bf16=on_gpu and precision() == "bf16",
        fp16=on_gpu and precision() == "fp16",
        seed=seed,
        # Without it processes on a machine without GPUs would each train alone.
        use_cpu=ranks.count() > 1 and not on_gpu,
        # An annotator's own head learns from the processes alone that have rows of theirs.
        ddp_find_unused_parameters=ranks.count() > 1,
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
    )
    # Several GPUs would each get a slice of every tensor, and batches here are no stacks of rows.
    arguments._n_gpu = min(arguments.n_gpu, 1)
    return arguments


class _Epochs(Dataset[Mapping[str, Any]]):
    """One epoch at a time, a batch an item."""

    def __init__(self, batches: Batches) -> None:
        self.batches = batches
        self.epoch = 0

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, position: int) -> Mapping[str, Any]:
        return self.batches.batch(self.epoch, position)


class _Loader(DataLoader[Mapping[str, Any]]):
    """Tells the batches which epoch it is: the Trainer calls ``set_epoch`` where there is one."""

    def __init__(self, epochs: _Epochs) -> None:
        # A generator of its own: else it draws from the global one, once an epoch.
        super().__init__(
            epochs,
            batch_size=1,
            sampler=ranks.share(len(epochs)),
            collate_fn=_only,
            generator=torch.Generator(),
        )
        self._epochs = epochs

    def set_epoch(self, epoch: int) -> None:
        self._epochs.epoch = epoch


def _only(items: list[Mapping[str, Any]]) -> Mapping[str, Any]:
    return items[0]


class _Trainer(Trainer):  # type: ignore[misc]  # mypy does not look into transformers
    state: TrainerState
    control: TrainerControl
    model: nn.Module

    def get_train_dataloader(self) -> DataLoader[Mapping[str, Any]]:
        return _Loader(self.train_dataset)

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
    """Seals checkpoints, makes some within long epochs, stops early, and shows progress."""

    def __init__(self, folder: Path, settings: LoopSettings) -> None:
        self._folder = folder
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
        due = due and ranks.count() == 1  # several processes have clocks of their own
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
        for name, words in (
            ("loss", "loss"),
            ("eval_loss", "validation loss"),
            ("eval_accuracy", "validation accuracy"),
        ):
            if name not in logs:
                continue
            if not ranks.is_first() and math.isfinite(logs[name]):
                continue
            if not math.isfinite(logs[name]):
                raise ExportError(
                    "the training diverges: its loss is no number any more; "
                    "try a lower learning rate"
                )
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
        ranks.meet()  # each writes how its random numbers stand
        if ranks.is_first():
            checkpoints.seal(checkpoints.at_step(self._folder, state.global_step))
        ranks.meet()
        self._saved = time.monotonic()
