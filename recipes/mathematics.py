"""A hook of mkdocs: equations become MathML, which browsers draw without a script."""

from __future__ import annotations

import re

from latex2mathml.converter import convert

#: GitHub's two ways to write an equation: a block of the language math, and $`...`$ in a line.
_EQUATION = re.compile(r"^```math\n(.*?)\n```$|\$`(.+?)`\$", re.MULTILINE | re.DOTALL)


def on_page_markdown(markdown: str, **_: object) -> str:
    """Convert the equations of a page; called by mkdocs."""
    return _EQUATION.sub(_mathml, markdown)


def _mathml(equation: re.Match[str]) -> str:
    block, inline = equation.groups()
    if block:
        return f'<div class="equation">{convert(block, display="block")}</div>'
    # In a span: else Markdown reads an equation at a line's start as a block.
    return f"<span>{convert(inline)}</span>"
