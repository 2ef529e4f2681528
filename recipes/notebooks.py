"""A hook of mkdocs: notebooks of docs/notebooks become pages, with their stored outputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each notebook; called by mkdocs."""
    for path in sorted((Path(config.docs_dir) / "notebooks").glob("*.ipynb")):
        page = File.generated(config, f"notebooks/{path.stem}.md", content=as_markdown(path))
        files.append(page)
    return files


def as_markdown(path: Path) -> str:
    """A notebook as Markdown: its text, its code, and the code's output."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return "\n\n".join(part for cell in cells for part in _parts(cell))


def _parts(cell: dict[str, Any]) -> list[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return [source]
    printed = [_text(output) for output in cell["outputs"]]
    return [f"```python\n{source}\n```", *(f"```text\n{text}\n```" for text in printed)]


def _text(output: dict[str, Any]) -> str:
    lines = output["text"] if output["output_type"] == "stream" else output["data"]["text/plain"]
    return "".join(lines).rstrip()
