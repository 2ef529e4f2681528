"""Measure the sentences of README and the documentation: python recipes/prose.py [PAGE ...].

Prints for each page its words, as ``wc -w`` counts them, the mean length of its sentences, and the
share of sentences of eight words or fewer. Code, tables, headings and bold labels are no sentences.
It is a measure for writers, not a check.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]

#: What has no sentences: code, HTML, front matter, headings, tables and directives.
_OTHER = re.compile(
    r"^( *)```.*?^\1```$|^---\n.*?^---$|^<(div|figure).*?</\2>|^(?:#|\||:::|\{|    \w+:).*?$",
    re.MULTILINE | re.DOTALL,
)
_TAG = re.compile(r"<!--.*?-->|<[^>\n]+>", re.DOTALL)  # within a sentence, as of generated figures
_LABEL = re.compile(r"^[\W\d]*\*\*[^*]+[.:]\*\*", re.MULTILINE)  # "**Precision.**" before an item
_ITEM = re.compile(r"^ *(?:[-*]|\d+\.) +", re.MULTILINE)
_END = re.compile(r"(?<!e\.g)(?<!i\.e)(?<!vs)[.!?][)”\"*]*(?=\s+[^a-z\s]|\s*$)")
_SHORT = 8


def sentences(page: str) -> list[str]:
    """Return the sentences of a page, without marks of Markdown."""
    text = _TAG.sub("", _OTHER.sub("\n\n", page))
    text = re.sub(r"!?\[([^\]]*)\](\([^)]*\)|\[[^\]]*\])", r"\1", text)
    text = _ITEM.sub("\n\n", _LABEL.sub("\n\n", text))
    found = []
    for paragraph in re.split(r"\n\s*\n", text):
        flat = " ".join(paragraph.split())
        if _END.search(flat) and not flat.startswith("--8<--"):
            found += [part.strip(" *_") for part in _END.split(flat) if re.search(r"\w", part)]
    return found


def measures(pages: list[str]) -> str:
    """Return words, mean sentence length and share of short sentences, as cells of a line."""
    lengths = [len(sentence.split()) for page in pages for sentence in sentences(page)]
    words, count = sum(len(page.split()) for page in pages), max(1, len(lengths))
    short = sum(length <= _SHORT for length in lengths)
    return f"{words:6} {len(lengths):5} {sum(lengths) / count:6.1f} {100 * short / count:5.0f} %"


def main() -> None:
    """Print a line for each page, and one for all."""
    named = [Path(argument) for argument in sys.argv[1:]]
    paths = named or [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    texts = {path: path.read_text(encoding="utf-8") for path in paths}
    print(f"{'page':32} {'words':>6} {'sent.':>5} {'mean':>6} {'short':>7}")
    for path, text in texts.items():
        print(f"{path.name if named else path.relative_to(ROOT).as_posix():32} {measures([text])}")
    print(f"{'all':32} {measures(list(texts.values()))}")


if __name__ == "__main__":
    main()
