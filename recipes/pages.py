"""The figures of the documentation's pages, written from records.

    python recipes/pages.py            # writes the blocks of all pages again
    python recipes/pages.py --check    # shows what would change, and fails if anything would

A block stands between ``<!-- generated: NAME WORDS -->`` and ``<!-- end -->``. It has what the
function NAME of ``figures.py`` returns for the words: a table between blank lines, or, where the
two comments stand within a line, a few words of a sentence. (A comment at the start of a line ends
a paragraph, so a block within a sentence does not begin a line.)
"""

from __future__ import annotations

import argparse
import difflib
import inspect
import re
import sys
from functools import cache
from pathlib import Path

from fala import DataError
from figures import BLOCKS

ROOT = Path(__file__).parents[1]

#: A block: its words, and what it has.
BLOCK = re.compile(r"<!-- generated: (.+?) -->(.*?)<!-- end -->", re.DOTALL)


def pages() -> list[Path]:
    """README and the documentation's pages."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@cache
def generated(call: str) -> str:
    """What a block has, by the words of its first comment; links are those of a page in ``docs``.

    Raises:
        DataError: If there is no such block, its words do not fit, or a record is missing.
    """
    name, *words = call.split()
    if name not in BLOCKS:
        raise DataError(f"no block {name!r}; one of {', '.join(BLOCKS)}")
    try:
        inspect.signature(BLOCKS[name]).bind(*words)
    except TypeError as error:
        raise DataError(f"the block {call!r}: {error}") from error
    return BLOCKS[name](*words)


def written(text: str, page: Path) -> str:
    """A page's text, with its blocks as they should be.

    Raises:
        DataError: See ``generated``.
    """

    def block(match: re.Match[str]) -> str:
        call, before = match.groups()
        content = generated(call)
        if page.parent == ROOT:
            content = re.sub(r"\]\((?!https?:)", "](docs/", content)
        if "\n" in before or "\n" in content:
            content = f"\n\n{content}\n\n"
        return f"<!-- generated: {call} -->{content}<!-- end -->"

    return BLOCK.sub(block, text)


def differences() -> str:
    """What would change in the pages, as a diff; nothing if they are as the records are."""
    lines: list[str] = []
    for page in pages():
        text, name = page.read_text(encoding="utf-8"), str(page.relative_to(ROOT))
        now = written(text, page)
        lines += difflib.unified_diff(
            text.splitlines(), now.splitlines(), name, f"{name}, from the records", lineterm="", n=1
        )
    return "\n".join(lines)


def main() -> None:
    """Write the blocks of all pages, or check them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing; fail if it would")
    if parser.parse_args().check:
        if difference := differences():
            sys.exit(f"{difference}\n\n`python recipes/pages.py` writes these pages again")
        return
    for page in pages():
        text = page.read_text(encoding="utf-8")
        if (now := written(text, page)) != text:
            page.write_text(now, encoding="utf-8")
            print(page.relative_to(ROOT))


if __name__ == "__main__":
    main()
