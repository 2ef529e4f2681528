"""A hook of mkdocs: the pages' equations become MathML, which browsers draw without a script."""

from __future__ import annotations

import re

from latex2mathml.converter import convert

#: GitHub's two ways to write an equation: a block of the language math, and $`...`$ in a line.
_EQUATION = re.compile(r"^```math\n(.*?)\n```$|\$`(.+?)`\$", re.MULTILINE | re.DOTALL)


def on_page_markdown(markdown: str, **_: object) -> str:
    """The page with its equations drawn; mkdocs calls it."""
    return _EQUATION.sub(_drawn, markdown)


def _drawn(equation: re.Match[str]) -> str:
    block, inline = equation.groups()
    if block:
        return f'<div class="equation">{convert(block, display="block")}</div>'
    # In a span, so that Markdown takes none at a line's start for a block.
    return f"<span>{convert(inline)}</span>"
