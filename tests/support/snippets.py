"""The code in README and in the documentation's pages."""

import re
import shlex
from dataclasses import dataclass

from checkout import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

_FENCE = re.compile(r"^( *)```(.*?)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_INCLUDED = re.compile(r'--8<-- "([^:]+)(?::\d+)?"')


@dataclass(frozen=True)
class Block:
    """A block of code with its page, line, language and marks."""

    page: str
    line: int
    language: str
    marks: frozenset
    text: str

    @property
    def included(self):
        """The file that the block includes, if any."""
        match = _INCLUDED.fullmatch(self.text.strip())
        return match and match[1]

    def __str__(self):
        return f"{self.page}:{self.line}"


def blocks(*languages):
    """The blocks of code in some languages, in the order of pages."""
    result = []
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        for match in _FENCE.finditer(text):
            words = match[2].strip("{} ").replace(".", "").split()
            line = text.count("\n", 0, match.start()) + 1
            page = path.relative_to(ROOT).as_posix()
            marks = frozenset(words[1:])
            result.append(Block(page, line, words[0] if words else "", marks, match[3]))
    return [block for block in result if block.language in languages]


def commands(block):
    """The command lines of a block, as words; of `a && b` both."""
    for line in block.text.splitlines():
        for part in line.split("&&"):
            if words := shlex.split(part, comments=True):
                yield words
