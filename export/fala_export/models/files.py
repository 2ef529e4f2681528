"""Read what a model's files say about texts, for every form of a model."""

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
    """What a model's files and the vendor say about texts and embeddings.

    Attributes:
        folder: The model's folder.
        modules: The steps that the model's files list.
        settings: The settings of sentence-transformers.
        source: The vendor's settings.
        prompt: The text that is put before every text; may be empty.
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
            ExportError: Texts are read in a way that cannot be exported, or the prompt does not
                exist.
        """
        settings = read_settings(folder, modules)
        prompt = settings.prompt(source.prompt, source.ignore)
        return cls(folder, modules, settings, source, prompt)

    def adapt(self, tokenizer: Tokenizer) -> None:
        """Make a tokenizer read texts as the files say: in lower case, after the prompt."""
        if self.settings.lowercase:
            lower_case(tokenizer)
        if self.prompt:
            put_before(tokenizer, self.prompt)

    def finish(self, end: Ending) -> None:
        """Add the steps after the pooling, the scaling and the cut to an ending without steps.

        Raises:
            ExportError: A file cannot be read, or the steps do not fit together.
        """
        end.steps.extend(read_steps(self.folder, self.modules, end.dimension))
        end.normalize = self.modules.normalize
        self.cut(end)

    def cut(self, end: Ending) -> None:
        """Make an ending keep as many dimensions as the vendor or the files say.

        Raises:
            ExportError: An embedding has fewer dimensions.
        """
        source = self.source
        end.cut = self.settings.kept_numbers(source.dimension, end.full_dimension, source.ignore)

    def not_kept(self, side: object = None, file: str = "") -> dict[str, str]:
        """Return the settings of the files that a bundle does not store, each with a sentence.

        Args:
            side: The side on which the tokenizer truncates long texts.
            file: The file that sets the side.

        Raises:
            ExportError: A setting was not explicitly ignored.
        """
        ignore = self.source.ignore
        left = self.settings.left_out(self.prompt, ignore)
        if str(side).lower() != "left":
            return left
        statement = f"{file} truncates long texts at their beginning (truncation_side = left)"
        return left | not_kept("truncation_side", statement, ignore)
