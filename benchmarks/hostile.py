"""Damaged and hostile bundles, signed again so that every parser is reached, against a device.

    python benchmarks/hostile.py --count 400
    python benchmarks/hostile.py --count 20000 --seed 7 --workers 4
    python benchmarks/hostile.py --alone --only 1234 --seed 7

A bundle of word vectors, of an ONNX encoder, and of one in ONNX Runtime's format are changed by
seed: bytes of any file; numbers and texts of the manifest and the tokenizer; numbers, names and
operators of the graph; arrays; and the bundles of fala.testing.hostile. Every one is offered to a
device that knows its user, in a worker whose memory is limited, so that a process that ends is
counted. Refused is well: with a FalaError, within 5 seconds and 1 GiB, and the device answers as
before, to the last bit. Installed is well too, where it then answers odd texts.

With --alone no other process loads a bundle first, as on systems that let an app start none: what
is counted then is what the looks before a load find. (A graph that is large for texts of one length
alone is not among that.)
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np
from support.changed_bundles import write_changed
from support.journal import Journal
from support.measuring import report

import fala
from fala.playground.releases import built_in
from fala.release import ONNX, ONNX_MODEL, ORT, ORT_MODEL, TOKENIZER

SLOW, LARGE, STUCK = 5.0, 1 << 30, 60.0  # seconds, bytes, seconds
_ROOM = 6 << 30  # of address space
_WORDS = ("the", "a", "film", "is", "was", "good", "bad", "not", "i", "you", "great", "awful", ".")
_TEXTS = [f"{one} {other} film" for one in _WORDS for other in _WORDS[:4]]
_ASKED = ["", " ", "a good film", "\0", "\U0001f600 \u0301", "good " * 5_000, "\u8fd9\u662f"]

# Sound releases to begin with


def _model(width: int) -> bytes:
    """Token vectors, their masked mean, and its tanh."""
    from onnx import TensorProto, helper, numpy_helper

    table = np.random.default_rng(0).normal(size=(len(_WORDS) + 4, width)).astype(np.float32)
    constants = {"table": table, "last": np.array([2]), "tokens": np.array([1])}
    make = helper.make_node
    nodes = [
        make("Gather", ["table", "input_ids"], ["embedded"]),
        make("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        make("Unsqueeze", ["mask", "last"], ["wide"]),
        make("Mul", ["embedded", "wide"], ["kept"]),
        make("ReduceSum", ["kept", "tokens"], ["sum"], keepdims=0),
        make("ReduceSum", ["mask", "tokens"], ["count"], keepdims=1),
        make("Div", ["sum", "count"], ["mean"]),
        make("Tanh", ["mean"], ["embedding"]),
    ]
    info = helper.make_tensor_value_info
    inputs = ("input_ids", "attention_mask")
    graph = helper.make_graph(
        nodes, "tiny",
        [info(name, TensorProto.INT64, ["n", "length"]) for name in inputs],
        [info("embedding", TensorProto.FLOAT, ["n", width])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(made.SerializeToString())


def _tokenizer() -> bytes:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *_WORDS]
    made = Tokenizer(
        models.WordPiece({one: at for at, one in enumerate(tokens)}, unk_token="[UNK]")
    )
    made.normalizer = normalizers.Sequence(
        [normalizers.BertNormalizer(), normalizers.Replace(" {2,}", " ")]
    )
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    made.add_special_tokens(["[PAD]", "[CLS]", "[SEP]"])
    return made.to_str().encode()


def _converted(model: bytes, folder: Path) -> bytes:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.optimized_model_filepath = str(folder / "model.ort")
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return (folder / "model.ort").read_bytes()


def _releases(folder: Path) -> dict[str, Path]:
    """The device's own release, and sound ones to change, with bridges and priors."""
    width, random_ = 8, np.random.default_rng(1)
    glove = built_in("glove")
    made = {"old": folder / "old.fala"}
    words = fala.Head("classification", ("0", "1"), *_head(glove.manifest.dimension, random_))
    fala.write_release(made["old"], glove, words, {})
    model = _model(width)
    for kind, files in (
        (ONNX, {ONNX_MODEL: model}), (ORT, {ORT_MODEL: _converted(model, folder)}),
    ):  # fmt: skip
        path = made[kind] = folder / f"{kind}.fala"
        manifest = fala.Manifest(
            f"tiny {kind}", kind, width, "fp32", max_length=64, details={"pad_id": 0}
        )
        head = fala.Head("classification", ("0", "1"), *_head(width, random_))
        fala.write_bundle(path, manifest, {**files, TOKENIZER: _tokenizer()}, head)
    for kind in (ONNX, ORT, "old"):
        path = made["static"] = folder / "static.fala"
        if kind != "old":
            path = made[kind]
        else:
            shutil.copy(made["old"], path)
        bundle = fala.Bundle.open(path)
        size = bundle.manifest.dimension
        zeros = np.zeros(size, np.float32)
        matrix = random_.normal(size=(glove.manifest.dimension, size)).astype(np.float32) * 0.1
        bridge = fala.Bridge(glove.backbone_digest, matrix, zeros, zeros + 1)
        fala.add_bridge(path, bundle, bridge, {})
        wide = np.zeros(size + 1, np.float32)
        prior = fala.PopulationPrior(wide, wide + 1, np.zeros((1, size + 1), np.float32))
        fala.add_prior(path, fala.Bundle.open(path), prior, {})
    return made


def _head(width: int, random_: np.random.Generator) -> tuple[Any, Any]:
    return random_.normal(size=(1, width)).astype(np.float32), np.zeros(1, np.float32)


# One attempt, in a worker


def _peak(reset: bool) -> int:
    """The most memory that was in use since the last reset, where the system tells."""
    try:
        if reset:
            Path("/proc/self/clear_refs").write_text("5")
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        return 0


def attempt(seed: str, folder: Path, releases: Mapping[str, Path]) -> dict[str, Any]:
    """Offer a bundle to a device; say what came of it."""
    path, home = folder / "offered.fala", folder / "device"
    what = write_changed(seed, releases, path)
    shutil.rmtree(home, ignore_errors=True)
    shutil.copytree(folder / "learned", home)
    before_memory, began = _peak(reset=True), time.perf_counter()
    with fala.Device.open(home) as device:
        before = device.predict(_ASKED)
        try:
            device.replace(path, fala.Budget(forward_passes=4))
            result, told = "installed", ""
        except fala.FalaError as error:
            result, told = "refused", f"{type(error).__name__}: {error}"
            if not np.array_equal(device.predict(_ASKED), before):
                result = "changed though refused"
        except Exception as error:  # what is looked for
            result, told = "other error", f"{type(error).__name__}: {error}"
        seconds, memory = time.perf_counter() - began, _peak(reset=False) - before_memory
        if result == "installed":
            try:
                for text in _ASKED:
                    if not np.isfinite(device.predict([text])).all():
                        raise ValueError("not finite")
            except Exception as error:
                result, told = "installed and cannot answer", f"{type(error).__name__}: {error}"
    return {
        "seed": seed, "what": what, "result": result, "told": ascii(told)[:300],
        "seconds": seconds, "memory": memory,
    }  # fmt: skip


def _work(folder: Path) -> None:
    """Answer seeds from stdin, a line each."""
    releases = {path.stem: path for path in (folder.parent / "releases").glob("*.fala")}
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_ROOM, _ROOM))
    except (ImportError, ValueError):
        pass
    for line in sys.stdin:
        print(json.dumps(attempt(line.strip(), folder, releases)), flush=True)


class _Worker:
    """A worker process, started again when it ends."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder, self._environment = folder, dict(environment)
        self._process: subprocess.Popen[str] | None = None

    def ask(self, seed: str) -> dict[str, Any]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, __file__, "--work", str(self._folder)], text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                env=self._environment,
            )  # fmt: skip
        process = self._process
        stuck = threading.Timer(STUCK, process.kill)
        stuck.start()
        try:
            if process.stdin is None or process.stdout is None:
                raise RuntimeError("a worker without pipes")
            print(seed, file=process.stdin, flush=True)
            line = process.stdout.readline()
        except OSError:
            line = ""
        finally:
            stuck.cancel()
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        self._process = None
        code = process.wait()
        return {
            "seed": seed, "what": "", "result": "process ended", "told": f"with {code}",
            "seconds": 0.0, "memory": 0,
        }  # fmt: skip

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@click.command()
@click.option("--count", type=click.IntRange(1), default=400, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--workers", type=click.IntRange(1), default=2, show_default=True)
@click.option("--only", type=int, help="One bundle of the seed, with all that came of it.")
@click.option("--alone", is_flag=True, help="Start no process to load a bundle first.")
@click.option("--journal", type=click.Path(path_type=Path), help="File to go on from.")
@click.option("--json", "as_json", is_flag=True)
@click.option("--work", type=click.Path(path_type=Path), hidden=True)
def main(
    count: int, seed: int, workers: int, only: int | None, alone: bool,
    journal: Path | None, as_json: bool, work: Path | None,
) -> None:  # fmt: skip
    """Offer hostile bundles to a device, and count what comes of it."""
    if work is not None:
        _work(work)
        return
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    environment.pop("FALA_NO_CHILD_PROCESS", None)
    if alone:
        environment["FALA_NO_CHILD_PROCESS"] = "1"
    asked = {"count": count, "seed": seed, "only": only, "alone": alone}
    stopped, answers = threading.Event(), queue.Queue[dict[str, Any]]()
    with tempfile.TemporaryDirectory() as folder, Journal(journal, asked) as kept:
        found: list[dict[str, Any]] = list(kept.before)
        root = Path(folder)
        (root / "releases").mkdir()
        releases = _releases(root / "releases")
        (root / "0").mkdir()
        with fala.Device.create(root / "0" / "learned", releases["old"]) as device:
            device.learn(_TEXTS, [str(at % 2) for at in range(len(_TEXTS))])
        for number in range(1, workers):
            shutil.copytree(root / "0", root / str(number))
        wanted: queue.Queue[int] = queue.Queue()
        done = {answer["seed"] for answer in found}
        for number in range(count) if only is None else [only]:
            if f"{seed}-{number}" not in done:
                wanted.put(number)

        def run(number: int) -> None:
            worker = _Worker(root / str(number), environment)
            try:
                while not stopped.is_set():
                    answers.put(worker.ask(f"{seed}-{wanted.get_nowait()}"))
            except queue.Empty:
                pass
            finally:
                worker.close()

        rest = wanted.qsize()
        threads = [threading.Thread(target=run, args=(number,)) for number in range(workers)]
        for thread in threads:
            thread.start()
        try:
            with click.progressbar(range(rest), label="bundles", file=sys.stderr) as bar:
                for _ in bar:
                    found.append(answers.get())
                    kept.note(found[-1])
        finally:
            stopped.set()
            for thread in threads:
                thread.join()
    _tell(found, as_json=as_json, everything=only is not None)


def _tell(answers: list[dict[str, Any]], *, as_json: bool, everything: bool) -> None:
    results = Counter(answer["result"] for answer in answers)
    slow = [answer for answer in answers if answer["seconds"] > SLOW]
    large = [answer for answer in answers if answer["memory"] > LARGE]
    record = {
        "bundles": len(answers), **dict(results), "slow": len(slow), "large": len(large),
        "slowest_seconds": max(answer["seconds"] for answer in answers),
        "largest_megabytes": max(answer["memory"] for answer in answers) >> 20,
    }  # fmt: skip
    bad = [one for one in answers if one["result"] not in ("refused", "installed")] + slow + large
    shown = answers if everything else bad[:40]
    report({**record, "wrong": len(bad), "what": shown}, as_json=as_json)


if __name__ == "__main__":
    main()
