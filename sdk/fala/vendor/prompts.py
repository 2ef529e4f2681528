"""What a vendor writes writers' prompts into a release with."""

from fala.bundle.format import MAX_PROMPT_LENGTH, MAX_PROMPTS
from fala.bundle.prompts import prompt_state
from fala.bundle.writing import add_prompts

__all__ = ["MAX_PROMPTS", "MAX_PROMPT_LENGTH", "add_prompts", "prompt_state"]
