"""A tiny module to train, and trainings that are killed or interrupted on the way."""

import contextlib
import os
import signal
import time
from pathlib import Path

import pytest
import torch
from torch import nn

from fala_export.training import loop

SETTINGS = loop.LoopSettings(epochs=4, learning_rate=0.3, patience=2)


class Points:
    """Noisy points of a plane; every epoch has its own order and its own noise."""

    def __init__(self, seed=0, size=60, batch=8):
        generator = torch.Generator().manual_seed(seed)
        self.seed, self.size = seed, batch
        self.inputs = torch.randn(size, 5, generator=generator)
        self.targets = self.inputs @ torch.arange(5.0)

    def __len__(self):
        return -(-len(self.inputs) // self.size)

    def batch(self, epoch, position):
        generator = torch.Generator().manual_seed(self.seed + 1_000 * epoch)
        order = torch.randperm(len(self.inputs), generator=generator)
        chosen = order[position * self.size : (position + 1) * self.size]
        noise = torch.randn(len(self.inputs), generator=generator)
        return {"inputs": self.inputs[chosen], "targets": (self.targets + noise)[chosen]}


class Plane(nn.Module):
    """Linear regression with dropout, which draws from the global generator."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.layer = nn.Linear(5, 1)
        self.dropout = nn.Dropout(0.2)

    def forward(self, inputs, targets):
        loss = (self.layer(self.dropout(inputs)).squeeze(1) - targets).square().mean()
        return {"loss": loss, "weight": torch.tensor(float(len(targets)))}


def train(folder, resume=False, settings=SETTINGS, validation=True, **recipe):
    module = Plane()
    history = loop.Training(settings, Path(folder), 5, recipe, resume).run(
        module, Points(), Points(seed=9, size=20) if validation else None
    )
    return module, history


def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def at(count, function):
    """Kills the process at the call of this number."""
    calls = []

    def wrapped(*arguments, **options):
        calls.append(1)
        if len(calls) == count:
            die()
        return function(*arguments, **options)

    return wrapped


def train_and_die(folder, point, count):
    """Train with a checkpoint after every step; die at the call of that number of a point."""
    loop._CHECKPOINT_SECONDS = 0.0
    if point == "step":
        Plane.forward = at(count, Plane.forward)
    elif point == "writing":  # with the weights there, and nothing else
        save = loop._Trainer._save_optimizer_and_scheduler
        loop._Trainer._save_optimizer_and_scheduler = at(count, save)
    elif point == "last":  # with all there but the state
        loop.TrainerState.save_to_json = at(count, loop.TrainerState.save_to_json)
    train(folder)


def train_to(folder, reached):
    """Train until a checkpoint is half-written, create a file, and wait."""

    def wait(*_):
        Path(reached).touch()
        time.sleep(60)

    loop._CHECKPOINT_SECONDS = 0.0
    loop.TrainerState.save_to_json = wait
    train(folder)


@contextlib.contextmanager
def interrupted_at(kind, count):
    """Press Ctrl-C in a module's forward pass of this number; every step has left a checkpoint."""
    forward, calls = kind.forward, []

    def stopping(self, *values, **named):
        calls.append(1)
        if len(calls) == count:
            raise KeyboardInterrupt
        return forward(self, *values, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "_CHECKPOINT_SECONDS", 0.0)
        patch.setattr(kind, "forward", stopping)
        yield
