"""Write a commented recipe for a vendor's rows."""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from fala import Bundle, BundleError, DataError
from fala.base.errors import be
from fala.bundle.manifest import LONGEST_LABEL, printable_name
from fala.bundle.signature import packed_manifest
from fala.model.links import LABELS
from fala.updates import DEFAULT_PRODUCT
from fala_export.base.checks import check_outputs, check_release_name
from fala_export.base.errors import ExportError
from fala_export.base.files import write_file
from fala_export.embedding import open_earlier
from fala_export.fit.bridge import least_documents
from fala_export.people.draw import few_annotators
from fala_export.recipe.training import LabelSettings
from fala_export.rows.columns import RATINGS, Columns
from fala_export.rows.data_set import check_devices, gather_public
from fala_export.rows.division import divide_by_user
from fala_export.rows.row_files import left_out_in_words, named_columns, undivided_rows
from fala_export.rows.table import Rows
from fala_export.rows.user_rows import label_names, numbers_as_classes, rating_of

# The largest number that is accepted in a column of ratings.
_LARGEST = 1e6
# Number of labels that a recipe's comments list, and characters of each.
_SHOWN, _LONGEST = 10, 30


def guess_rating(path: Path, columns: Columns) -> tuple[float, float] | None:
    """Return the range of a usual column of ratings, if it has more than two numbers."""
    if (columns.label or "").casefold() not in RATINGS:
        return None
    try:
        link = rating_of(-_LARGEST, _LARGEST)
        numbers: list[Any] = undivided_rows(path, columns, link, say=lambda _: None).label_values
    except DataError:
        return None
    return (min(numbers), max(numbers)) if len(numbers) > 2 else None


def write_recipe(
    data: Path,
    out: Path,
    columns: Columns,
    labels: LabelSettings,
    *,
    source: str | None,
    revision: str | None = None,
    name: str | None,
    earlier: Path | None = None,
    repository: Path | None = None,
) -> dict[str, Any]:
    """Write a recipe for rows.

    Args:
        data: The file of rows.
        out: The recipe to write.
        columns: The columns that the vendor names; other columns are guessed.
        labels: The vendor's settings for labels.
        source: A model's folder, file or name on the hub, or a file of word vectors; if None, the
            vendor has to fill it in.
        revision: Branch, tag or commit of a model on the hub.
        name: The release's name; if None, the name of the rows' file, with a number if the earlier
            release has the same name, because two releases with one name would be one file.
        earlier: The release that devices have; without it, its tables are commented out.
        repository: Where to publish the release; without it, its table is commented out.

    Returns:
        A summary with the recipe's path, and facts about the rows.

    Raises:
        DataError: The rows cannot be read or divided.
        ExportError: The recipe exists or cannot be written, or devices with the earlier release
            cannot install a release made from these rows.
        BundleError: The earlier release cannot be trusted.
    """
    check_outputs([out], [], [])
    if not data.is_file() and not data.is_dir():
        raise ExportError(f"{data}: is not a regular file, so the recipe could not read it again")
    if os.path.lexists(out):
        raise ExportError(f"{out} exists; choose another file with --out")
    old = None if earlier is None else open_earlier(earlier)
    release = name or _next_name(data.stem, old)
    check_release_name(release)
    if labels.link == LABELS:
        labels = LabelSettings(guess_rating(data, named_columns(data, columns)))
    rows = undivided_rows(data, columns, labels.link)
    counts = _count(data, rows, labels)
    divided = divide_by_user(rows, seed=0)
    public = gather_public(divided, labels.link)
    product = None
    if old is not None:
        check_devices(public, old)
        # Devices with the earlier release follow this product's updates.
        product = old.manifest.product or DEFAULT_PRODUCT
    used_columns = {key: value for key, value in asdict(rows.columns).items() if value}
    skips = used_columns.pop("skip_bad_rows", False)
    facts = {
        "columns": rows.columns.described,
        **counts,
        "public_rows": len(public),
        "split": divided.division or "the file's own",
    }
    if divided.left_out:
        facts["left_out"] = left_out_in_words(divided.left_out)
    notes = "".join(f"# {key}: {_one_line(value)}\n" for key, value in facts.items())
    table = "".join(f"{key} = {_quoted(value)}\n" for key, value in used_columns.items())
    table += "skip_bad_rows = true\n" if skips else ""
    recipe = (
        f"# A release's recipe: fala-export release {_one_line(out.name)}\n"
        "# Paths count from this file's folder.\n"
        f"name = {_quoted(release)}\n"
        f"{'' if product is None else f'product = {_quoted(product)}'}\n"
        f"# Rows; the public ones make the release.\n{notes}"
        f"data = {_quoted(_relative(out, data))}\n"
        f"{_kind(labels)}\n"
        f"[columns]\n{table}\n{_source_table(source, revision, out)}\n"
        "# Without [training] the model stays, and the head alone is fitted.\n"
        "# [training]\n# epochs = 2\n\n"
        f"{_tables(public, out, earlier, repository, checked=divided.has_devices)}"
    )
    write_file(out, recipe.encode())
    return {"written": str(out), **facts}


def _next_name(name: str, old: Bundle | None) -> str:
    """Return the name, numbered after an earlier release of the same name: ``posts-2``."""
    taken = re.fullmatch(
        rf"{re.escape(name)}(?:-([0-9]{{1,9}}))?", old.manifest.name if old else ""
    )
    return f"{name}-{int(taken[1] or 1) + 1}" if taken else name


def _count(data: Path, rows: Rows, labels: LabelSettings) -> dict[str, Any]:
    labelled = rows.where(rows.label_codes >= 0)
    if not labelled:
        raise DataError("no row has a label; name their column with --label")
    return {
        "rows": len(rows),
        "texts": len(rows.texts()),
        "users": rows.count_users(),
        **_describe_labels(data, labelled, labels),
    }


def _describe_labels(data: Path, rows: Rows, labels: LabelSettings) -> dict[str, str]:
    """Describe the labels of some rows."""
    if labels.rating is not None:
        mean = np.array(rows.values[:-1], dtype=np.float64)[rows.label_codes].mean()
        return {"ratings": f"{labels.rating[0]:g} to {labels.rating[1]:g}, mean {mean:.2f}"}
    names = [str(label) for label in label_names(rows.label_values)]
    kind = "tags" if labels.tags else "labels"
    short = [name if len(name) <= _LONGEST else f"{name[:_LONGEST]}..." for name in names[:_SHOWN]]
    summary = {kind: f"{len(names)}: {' | '.join(short)}" + " | ..." * (len(names) > _SHOWN)}
    remark = "" if labels.tags else numbers_as_classes(names, str(data))
    if not all(printable_name(name, LONGEST_LABEL) for name in names):
        remark = "a label has control characters or is too long, so no release can have it"
    return {**summary, "remark": remark} if remark else summary


def _kind(labels: LabelSettings) -> str:
    """Return the recipe's keys for the kind of labels."""
    if labels.tags:
        return "# A text may have several labels, or none.\ntags = true\n"
    if labels.rating is None:
        return ""
    low, high = labels.rating
    return (
        f"# Labels are numbers that users give, within this range.\nrating = [{low:g}, {high:g}]\n"
    )


def _tables(
    public: Rows, out: Path, earlier: Path | None, repository: Path | None, *, checked: bool
) -> str:
    """Return the tables about devices, commented out if the vendor has to decide."""
    few = few_annotators(public)
    old = "earlier.fala" if earlier is None else _relative(out, earlier)
    folder = "REPO" if repository is None else _relative(out, repository)
    comment, has_texts = "A bridge lets devices predict before any forward pass.", False
    if earlier is not None:
        texts = len(public.texts())
        fewest = least_documents(Bundle.open(earlier).manifest.dimension)
        comment = f"{comment} It needs {fewest} public texts; there {be(texts)} {texts}."
        has_texts = texts >= fewest
    tables = (
        (comment, f"[bridge]\nfrom = [{_quoted(old)}]\n", has_texts),
        (
            "How people differ, from public annotators"
            + (f": {few}." if few else ".")
            + " With [training], only the rows that it holds out count, a fifth.",
            "[scales]\n",
            earlier is not None and not few,
        ),
        (
            "Held-out users are simulated; below the least gain nothing is written."
            + ("" if checked else " No user of these rows can be simulated."),
            f"[check]\nfrom = {_quoted(old)}\nminimum_gain = 0.0\n",
            earlier is not None and checked,
        ),
        ("Make a key with fala-export key vendor.pem.", '[sign]\nkey = "vendor.pem"\n', False),
        (
            "A missing repository is created, with new keys next to it.",
            f"[publish]\nrepository = {_quoted(folder)}\n",
            repository is not None,
        ),
    )
    return "\n".join(
        f"# {_one_line(comment)}\n{table if active else _commented(table)}"
        for comment, table, active in tables
    )


def _commented(table: str) -> str:
    return "".join(f"# {line}\n" for line in table.splitlines())


def _source_table(source: str | None, revision: str | None, out: Path) -> str:
    if source is None:
        return (
            "# A model's folder; or its name on the hub, with revision = its full commit.\n"
            '[backbone]\nsource = "path/to/model"\n'
        )
    path = Path(source)
    if not path.exists():
        from fala_export.models.hub import commit_of

        commit = commit_of(source, revision)
        return f"[backbone]\nsource = {_quoted(source)}\nrevision = {_quoted(commit)}\n"
    line = f"source = {_quoted(_relative(out, path))}\n"
    is_model = path.is_dir() or path.suffix == ".onnx" or _is_bundle(path)
    return f"[backbone]\n{line}" if is_model else f"[word-vectors]\n{line}"


def _is_bundle(path: Path) -> bool:
    """Return whether a file is a bundle, because word vectors may also be in a ZIP file."""
    try:
        packed_manifest(path)
    except BundleError:
        return False
    return True


def _relative(out: Path, path: Path) -> str:
    return Path(os.path.relpath(path, out.parent)).as_posix()


def _quoted(text: str) -> str:
    """Return a string of TOML, whose escapes include JSON's."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _one_line(value: object) -> str:
    return "".join(sign if sign.isprintable() else " " for sign in str(value))
