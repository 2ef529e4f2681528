"""Search the built site for ten words, and check the pages: python recipes/search.py SITE."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from lunr import get_default_builder, lunr

#: Search words, and the pages of which one must be among the first results.
PAGES = {
    "FAQ": {"troubleshooting.html"},
    "image": {"encoders.html"},
    "csv": {"reference/rows.html"},
    "async": {"folder.html"},
    "embedding": {"encoders.html", "glossary.html"},
    "forget": {"folder.html"},
    "encrypt": {"folder.html"},
    "Android": {"platforms.html"},
    "rating": {"labels.html"},
    "rank": {"reference/app.html", "cookbook.html"},
}

#: Pages that a reader sees before scrolling.
_FIRST = 2


def pages_by_word(site: Path, words: Iterable[str]) -> dict[str, list[str]]:
    """The results for each word, the best first, by the browser's search in Python."""
    built = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    names, separator = built["config"]["fields"], re.compile(built["config"]["separator"])
    fields = [{"field_name": name, "boost": field["boost"]} for name, field in names.items()]
    documents = [
        (
            {"location": entry["location"]}
            | {name: separator.sub(" ", str(entry.get(name, ""))) for name in names},
            {"boost": entry.get("boost", 1)},
        )
        for entry in built["docs"]
    ]
    builder = get_default_builder()
    for pipeline in (builder.pipeline, builder.search_pipeline):
        pipeline.reset()  # the site's search does not stem words
    index = lunr("location", fields, documents, builder=builder)
    results = {}
    for word in words:
        pages = (
            match["ref"].partition("#")[0]
            for match in index.search(f"{word.lower()} {word.lower()}*")
        )
        results[word] = list(dict.fromkeys(pages))
    return results


def main(site: Path) -> int:
    """Print the first pages of every word; returns 1 if one has none of the expected pages."""
    wrong = 0
    for word, pages in pages_by_word(site, PAGES).items():
        right = bool(PAGES[word] & set(pages[:_FIRST]))
        wrong += not right
        print(f"{'right' if right else 'WRONG'}  {word}: {', '.join(pages[:_FIRST])}")
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
