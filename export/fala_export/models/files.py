"""What a model's files say, for every form of a model: a transformer, a graph, a table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from fala_export.models.folder import (
    Modules,
    SentenceSettings,
    not_kept,
    read_settings,
    read_steps,
)
from fala_export.models.sentence_encoder import Ending
from fala_export.models.tokenizer import lower_case, put_before
from fala_export.recipe.settings import ModelSource


@dataclass(frozen=True)
class ModelFiles:
    """What a model's files and the vendor say of texts and embeddings, for every form of a model.

    Attributes:
        folder: The model's.
        modules: The steps that its files list.
        settings: Sentence-transformers' settings.
        source: The vendor's.
        prompt: What is put before every text; empty for nothing.
    """

    folder: Path
    modules: Modules
    settings: SentenceSettings
    source: ModelSource
    prompt: str

    @classmethod
    def read(cls, folder: Path, modules: Modules, source: ModelSource) -> ModelFiles:
        """Read the settings of a model's files.

        Raises:
            ExportError: The texts are read in a way that cannot be exported, or there is no such
                prompt.
        """
        settings = read_settings(folder, modules)
        prompt = settings.prompt(source.prompt, source.ignore)
        return cls(folder, modules, settings, source, prompt)

    def adapt(self, tokenizer: Tokenizer) -> None:
        """Let a tokenizer read texts as the files say: in lower case, after the prompt."""
        if self.settings.lowercase:
            lower_case(tokenizer)
        if self.prompt:
            put_before(tokenizer, self.prompt)

    def finish(self, end: Ending) -> None:
        """Let an ending without steps have those after the pooling, the scaling and the cut.

        Raises:
            ExportError: A file cannot be read, or the steps do not belong together.
        """
        end.steps.extend(read_steps(self.folder, self.modules, end.dimension))
        end.normalize = self.modules.normalize
        self.cut(end)

    def cut(self, end: Ending) -> None:
        """Let an ending keep as many numbers as the vendor or the files say.

        Raises:
            ExportError: There are not so many.
        """
        source = self.source
        end.cut = self.settings.kept_numbers(source.dimension, end.full_dimension, source.ignore)

    def not_kept(self, side: object = None, file: str = "") -> dict[str, str]:
        """What a bundle does not have of the files' settings, a sentence by the setting's name.

        Args:
            side: Where the tokenizer cuts long texts.
            file: The file that says so.

        Raises:
            ExportError: A setting is not left out on purpose.
        """
        ignore = self.source.ignore
        left = self.settings.left_out(self.prompt, ignore)
        if str(side).lower() != "left":
            return left
        statement = f"{file} cuts long texts at their beginning (truncation_side = left)"
        return left | not_kept("truncation_side", statement, ignore)
