"""Read what a model's files say about texts, for every form of a model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from fala_export.base.errors import ExportError
from fala_export.models.folder import (
    PROMPTS,
    SENTENCE_SETTINGS,
    Modules,
    read_object,
    read_steps,
    reading_part,
)
from fala_export.models.sentence_encoder import Ending
from fala_export.models.tokenizer import lower_case, put_before
from fala_export.recipe.settings import ModelSource

# Settings of a transformer, in addition to its length and case, that do not change its embeddings.
_NEUTRAL = {
    "module_output_name": ("token_embeddings",),
    "modality_config": (
        {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
    ),
    "unpad_inputs": (True, False),
}


@dataclass(frozen=True)
class ModelFiles:
    """What a model's files and the vendor say about texts and embeddings.

    Attributes:
        folder: The model's folder.
        modules: The steps that the model's files list.
        source: The vendor's settings, which may ignore settings of the files.
        longest: Number of tokens of a text that are read; None if it is not set.
        lowercase: Whether texts are read in lower case.
        prompts: Texts that may be put before every text, by name.
        prompt: The text that is put before every text; may be empty.
        truncate_dim: Number of dimensions that are kept; None keeps all.
    """

    folder: Path
    modules: Modules
    source: ModelSource
    longest: int | None
    lowercase: bool
    prompts: Mapping[str, str]
    prompt: str
    truncate_dim: int | None

    @classmethod
    def read(cls, folder: Path, modules: Modules, source: ModelSource) -> ModelFiles:
        """Read sentence-transformers' settings for a model's texts and embeddings.

        Raises:
            ExportError: Texts are read in a way that cannot be exported, or the prompt does not
                exist.
        """
        model = read_object(folder / PROMPTS) or {}
        with reading_part(PROMPTS):
            prompts = {name: str(text or "") for name, text in (model.get("prompts") or {}).items()}
            default = model.get("default_prompt_name")
            if default is not None and default not in prompts:
                raise ValueError(f"the default prompt {default!r} does not exist")
            cut = model.get("truncate_dim")
            if cut is not None and (type(cut) is not int or cut < 1):
                raise ValueError("truncate_dim must be a whole number of at least 1")
        inner = modules.transformer
        names = [f"{inner}/{name}" if inner else name for name in SENTENCE_SETTINGS]
        name = next((name for name in names if (folder / name).is_file()), names[0])
        settings = read_object(folder / name) or {}
        task = settings.pop("transformer_task", "feature-extraction")
        if task != "feature-extraction":
            raise ExportError(f"a transformer for {task} cannot be exported")
        longest = settings.pop("max_seq_length", None)
        lowercase = settings.pop("do_lower_case", None)
        valid_length = longest is None or (type(longest) is int and longest > 0)
        if not valid_length or lowercase not in (None, True, False):
            wrong = "do_lower_case" if valid_length else "max_seq_length"
            raise ExportError(f"{name} sets {wrong} to an invalid value; correct it there")
        for key, value in settings.items():
            if value not in (None, {}, [], *_NEUTRAL.get(key, ())):
                raise ExportError(
                    f"{name} sets {key} to {json.dumps(value)[:80]}, which cannot be exported; to "
                    "export without this setting, remove it there"
                )
        chosen = source.prompt
        if chosen is not None and chosen not in prompts:
            named = ", ".join(prompts) or "none"
            raise ExportError(f"{PROMPTS} has no prompt {chosen!r}; its prompts are: {named}")
        if chosen is None and "prompts" not in source.ignore:
            chosen = default
        prompt = "" if chosen is None else prompts[chosen]
        return cls(folder, modules, source, longest, bool(lowercase), prompts, prompt, cut)

    def adapt(self, tokenizer: Tokenizer) -> None:
        """Make a tokenizer read texts as the files say: in lower case, after the prompt."""
        if self.lowercase:
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
        full = end.full_dimension
        own = None if "truncate_dim" in self.source.ignore else self.truncate_dim
        kept = self.source.dimension or own or full
        if kept > full:
            raise ExportError(f"an embedding has {full} dimensions, so it cannot be cut to {kept}")
        end.cut = None if kept == full else kept

    def not_kept(self, side: object = None, file: str = "") -> dict[str, str]:
        """Return the settings of the files that a bundle does not store, each with a sentence.

        Args:
            side: The side on which the tokenizer truncates long texts.
            file: The file that sets the side.

        Raises:
            ExportError: The tokenizer truncates texts at their beginning, and this is not ignored.
        """
        ignore, found = self.source.ignore, {}
        prompts = {name: text for name, text in self.prompts.items() if text}
        if prompts and not self.prompt:
            named = ", ".join(f"{name} ({text!r:.40})" for name, text in prompts.items())
            found["prompts"] = f"{PROMPTS} has prompts, but none is put before a text: {named}"
        if self.truncate_dim is not None and "truncate_dim" in ignore:
            found["truncate_dim"] = (
                f"{PROMPTS} cuts embeddings to truncate_dim = {self.truncate_dim}; the bundle does "
                "not"
            )
        if str(side).lower() == "left":
            statement = f"{file} truncates long texts at their beginning (truncation_side = left)"
            if "truncation_side" not in ignore:
                raise ExportError(
                    f"{statement}, which cannot be exported; to export without it, add --ignore "
                    "truncation_side"
                )
            found["truncation_side"] = f"{statement}; the bundle does not"
        return found
