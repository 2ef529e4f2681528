"""What a vendor writes writers' prompts into a release with."""

from fala.bundle.format import HARD_PROMPT, MAX_PROMPT_LENGTH, MAX_PROMPTS
from fala.bundle.prompts import MOST_COMPILED, prompt_state
from fala.bundle.writing import add_prompts

__all__ = [
    "HARD_PROMPT",
    "MAX_PROMPTS",
    "MAX_PROMPT_LENGTH",
    "MOST_COMPILED",
    "add_prompts",
    "prompt_state",
]
