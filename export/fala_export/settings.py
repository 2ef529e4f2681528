"""What a vendor may say of a model and of its export: options of commands, keys of recipes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeAlias

from fala.cli.names import Described
from fala_export.options import Argument, Cosine, Count, File

#: How the states of a text's tokens become its embedding.
Pooling: TypeAlias = Literal["mean", "cls"]
#: Attention is trained, so only a training has it.
TrainedPooling: TypeAlias = Literal["mean", "cls", "attention"]


@dataclass(frozen=True)
class ModelSource:
    """Which model is loaded.

    Attributes:
        source: The model's folder, or its name on the hub.
        revision: Branch, tag or commit of a model on the hub.
    """

    source: Annotated[str, Argument("DIR_OR_NAME")]
    revision: str | None = None


@dataclass(frozen=True)
class ExportOptions:
    """How an encoder becomes a bundle.

    Attributes:
        name: Name in the manifest (default: the source's; of a student the file's).
        precision: How weights are stored.
        min_cosine: Mean cosine to float32 below which nothing is written.
        max_length: Tokens of a text that are read (default: 128, or all it can).
        ort: Store the model in ONNX Runtime's format, with its operators; fp16 and int4 save
            little there.
        adapters: Give the graph optional inputs for tasks' adapters, and for the norms behind
            them.
        prompts: Give the graph optional inputs for writers' prompts: keys and values in front of
            a text.
        hard_prompts: With --prompts: let the graph give keys and values, so that a device can
            make a prompt of a writer's texts; some 3 % slower.
        keep_speed: Whether the manifest keeps the measured speed, which no two runs agree on.
        details: More to note in the manifest.
    """

    name: str = ""
    precision: Annotated[
        str,
        "--quantize",
        Described(
            {
                "auto": "the smallest that meets --min-cosine",
                "none": "float32, as the model is",
                "fp16": "half the size",
                "int8": "a quarter of it, and about twice as fast",
                "int4": "an eighth, less what stays finer; a little less faithful",
            }
        ),
    ] = "int8"
    min_cosine: Cosine = 0.98
    max_length: int | None = None
    ort: bool = False
    adapters: bool = False
    prompts: bool = False
    hard_prompts: bool = False
    keep_speed: bool = True
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def optional(self) -> list[str]:
        """What the graph takes beside texts."""
        wanted = {
            "adapters": self.adapters,
            "prompts": self.prompts,
            "hard-prompts": self.hard_prompts,
        }
        return [name for name, asked in wanted.items() if asked]


@dataclass(frozen=True)
class VectorOptions:
    """How static word vectors become a bundle.

    Attributes:
        precision: How numbers are stored.
        top: Only the file's first words.
        vocab: Only the words of this file, one a line.
    """

    precision: Literal["int8", "float16"] = "int8"
    top: Count | None = None
    vocab: File | None = None
