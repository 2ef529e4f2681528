"""The manifest: the description of a bundle."""

from __future__ import annotations

import hashlib
import json
import math
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from itertools import accumulate
from typing import Any, NoReturn

from fala.audit.tokenizer import distinct_keys
from fala.base.errors import BundleFormatError, BundleVersionError, safe_line
from fala.base.examples import CLASSIFICATION, MATCHING
from fala.bundle import format as layout
from fala.model.labels import LARGEST_INTEGER, LEAST_INTEGER, HeadLabel
from fala.model.links import LABELS, TAGS, Link, Rating
from fala.model.scales import Scales, scales_of

#: A product's name, safe as the name of a folder and a file on a server.
PRODUCT = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")

#: The largest version of a release.
MAX_VERSION = 10**15

#: Characters of the longest name and label that a manifest may have.
LONGEST_NAME, LONGEST_LABEL = 256, 1_024
#: Levels of lists and tables that a JSON file may have: a browser's Python ends at some thousands.
DEEPEST = 100
# One that does not end reaches to the end of the file: each byte is looked at once.
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_DIGEST = re.compile(r"[0-9a-f]{64}")
# Control characters, line and paragraph separators; characters that change the text direction.
_HIDDEN = {"Cc", "Zl", "Zp"}
_DIRECTIONAL = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


@dataclass(frozen=True)
class Manifest:
    """The description of a bundle.

    Attributes:
        name: The vendor's name of the backbone, for people; of an app's own encoder its identity.
        kind: ``"onnx"``, ``"word-vectors"``, ``"static"`` (vectors of tokens), or ``"external"``
            (the app's own encoder); or ``"adapter"``, a task's on the backbone of another bundle.
        dimension: Length of an embedding.
        precision: How weights are stored: ``"fp32"``, ``"fp16"``, ``"int8"`` or ``"int4"`` for a
            graph, ``"float16"`` or ``"int8"`` for word vectors, ``"fp32"``, ``"fp16"`` or
            ``"int8"`` for static embeddings.
        max_length: Tokens of a text that are read; None for all, and for kinds without tokens.
        task: ``"classification"`` or ``"matching"``; None for a backbone without a head.
        labels: The classes or tags in the order of the logits, all integers or all strings; two for
            a binary head and a matcher, whose one logit is the second's; a rating's name. Empty for
            a backbone without a head.
        details: Anything else worth keeping (the padding token's id, parity, provenance; the
            release's ``"product"`` and ``"version"``; a rating's ``"rating"``; of tags
            ``"exclusive"``, which is false; an adapter's ``"base"``, the digest of its backbone).
        files: SHA-256 of every file but the manifest, by name.
        format_version: The version of the layout, see ``fala.bundle.format``.
    """

    name: str
    kind: str
    dimension: int
    precision: str
    max_length: int | None = None
    task: str | None = None
    labels: tuple[HeadLabel, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    format_version: int = layout.FORMAT_VERSION

    def to_json(self) -> bytes:
        """Serialize, with sorted keys: the same manifest makes the same bytes.

        Raises:
            BundleFormatError: JSON cannot express it.
        """
        try:
            return json.dumps(asdict(self), indent=2, sort_keys=True, allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise BundleFormatError(f"the manifest cannot be written as JSON: {error}") from error

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the manifest, which covers all files by their digests."""
        return hashlib.sha256(self.to_json()).hexdigest()

    @classmethod
    def from_json(cls, data: bytes) -> Manifest:
        """Read and check a manifest; unknown fields are ignored.

        Raises:
            BundleFormatError: Not JSON, or a field is missing or invalid.
            BundleVersionError: It has another format version.
        """
        raw = read_json(data, "the manifest")
        if not isinstance(raw, dict):
            raise BundleFormatError("the manifest is not a JSON object")
        version = raw.get("format_version")
        if type(version) is not int or version != layout.FORMAT_VERSION:
            raise BundleVersionError(
                f"format version {version!r:.40}, and this FaLA reads version "
                f"{layout.FORMAT_VERSION}; update FaLA, or make the bundle again with the "
                "fala-export of this version"
            )
        if problems := _problems(raw):
            raise BundleFormatError(f"the manifest cannot be read: {'; '.join(problems)}")
        values = {entry.name: raw[entry.name] for entry in fields(cls) if entry.name in raw}
        return cls(**{**values, "labels": tuple(raw["labels"])})

    def check_files(self, present: set[str]) -> None:
        """Check that an archive has the manifest's files, and a kind's files are among them.

        Args:
            present: The archive's files, without the manifest.

        Raises:
            BundleFormatError: One is missing or too many.
        """
        required = set(self.files) | set(layout.BACKBONE_FILES[self.kind])
        if self.task is not None:
            required |= {layout.HEAD_WEIGHT, layout.HEAD_BIAS}
        if any(name.startswith(layout.LEXICAL) for name in self.files):
            required |= set(layout.LEXICAL_FILES)
        if missing := required - present:
            raise BundleFormatError(
                f"files of the manifest are missing from the archive: {', '.join(sorted(missing))}"
            )
        if extra := present - set(self.files):
            raise BundleFormatError(
                f"the archive has files that are not in the manifest: {', '.join(sorted(extra))}"
            )

    def digest_over(self, parts: list[str], *folders: str) -> str:
        """Return the SHA-256 over some texts and the digests of the files of some folders."""
        chosen = {name: digest for name, digest in self.files.items() if name.startswith(folders)}
        return hashlib.sha256(json.dumps([parts, chosen], sort_keys=True).encode()).hexdigest()

    @property
    def pad_id(self) -> int:
        """The padding token's id."""
        return int(self.details.get("pad_id", 0))

    @property
    def link(self) -> Link:
        """The meaning of the head's logits."""
        rating = self.details.get(layout.RATING)
        if rating is not None:
            return Rating(**rating)
        return LABELS if self.details.get(layout.EXCLUSIVE, True) else TAGS

    @property
    def scales(self) -> tuple[Scales, ...]:
        """The fit's scales, chosen on public annotators, by number of labels; may be empty."""
        return scales_of(self.details.get("scales", [])) or ()

    @property
    def product(self) -> str | None:
        """The product whose releases the version counts; None if the vendor names none."""
        product = self.details.get("product")
        return None if product is None else str(product)

    @property
    def title(self) -> str:
        """The release's name for people, such as ``comments v3 (minilm)``.

        It consists of the product, the version and the backbone's name, as far as the vendor gives
        them. The backbone's name stands alone if it is also the product's.
        """
        words = [self.product or self.name]
        words += [] if self.version is None else [f"v{self.version}"]
        words += [] if words[0] == self.name else [f"({self.name})"]
        return " ".join(words)

    @property
    def version(self) -> int | None:
        """The release's number among the product's; None if the vendor does not count."""
        version = self.details.get("version")
        return None if version is None else int(version)


def read_json(data: bytes, name: str) -> Any:  # noqa: ANN401
    """Read a JSON file of a bundle, strictly: all readers must read the same values.

    Args:
        data: The file.
        name: Its name, with which the error begins.

    Raises:
        BundleFormatError: It is not JSON, or has more than 100 levels, a duplicate key, a number
            that is not finite or too long, or a lone surrogate.
    """
    steps = (1 if code in b"[{" else -1 for code in _STRING.sub(b"", data) if code in b"[]{}")
    if max(accumulate(steps), default=0) > DEEPEST:
        raise BundleFormatError(f"{name} is not JSON: it has more than {DEEPEST} levels")
    try:
        value = json.loads(
            data.decode(),
            object_pairs_hook=distinct_keys,
            parse_constant=_reject,
            parse_float=_finite,
            parse_int=_small,
        )
        # The parser accepts a lone surrogate, but it cannot be encoded.
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise BundleFormatError(f"{name} is not JSON: {safe_line(error)}") from error
    return value


def _reject(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _reject(text[:40])


def _small(text: str) -> int:
    # Parsing many digits takes quadratic time, and a larger number overflows in other readers.
    number = int(text) if len(text) <= 20 else None
    if number is None or not LEAST_INTEGER <= number <= LARGEST_INTEGER:
        _reject(text[:40])
    return number


def _problems(raw: Mapping[str, Any]) -> list[str]:
    task, labels, files, details = (raw.get(key) for key in ("task", "labels", "files", "details"))
    max_length = raw.get("max_length")
    notes = details if isinstance(details, dict) else {}
    pad_id, product, version = notes.get("pad_id", 0), notes.get("product"), notes.get("version")
    checks = [
        (f"name is not a text of up to {LONGEST_NAME} printable characters",
         printable_name(raw.get("name"))),
        # Lists, not sets: the values need not be hashable.
        (f"kind is not one of {', '.join(layout.BACKBONE_FILES)}",
         raw.get("kind") in list(layout.BACKBONE_FILES)),
        (f"dimension is not a whole number from 1 to {layout.MAX_DIMENSION}",
         _whole(raw.get("dimension"), 1, layout.MAX_DIMENSION)),
        (f"precision is not a text of up to {LONGEST_NAME} printable characters",
         printable_name(raw.get("precision"))),
        (f"max_length is neither null nor a whole number from 1 to {layout.MAX_TOKENS}",
         max_length is None or _whole(max_length, 1, layout.MAX_TOKENS)),
        ("an encoder without a name",
         raw.get("kind") != layout.EXTERNAL or bool(str(raw.get("name")).strip())),
        ("a transformer without max_length", raw.get("kind") != layout.ONNX or max_length),
        ("task is unknown", task in [None, CLASSIFICATION, MATCHING]),
        (f"labels are not a list of integers, or of texts of up to {LONGEST_LABEL} characters "
         "without control characters",
         isinstance(labels, list) and (
             all(printable_name(each, LONGEST_LABEL) for each in labels)
             or all(type(each) is int for each in labels))),
        (f"more than {layout.MAX_LABELS} labels",
         not isinstance(labels, list) or len(labels) <= layout.MAX_LABELS),
        ("labels and task do not match", bool(labels) == (task is not None)),
        ("details are not an object", isinstance(details, dict)),
        ("the scales are not a table of numbers from 0 to 10000, by rising number of labels",
         scales_of(notes.get("scales", [])) is not None),
        ("the padding token's id is not a whole number", _whole(pad_id, 0, 2**31 - 1)),
        ("the product is not a name of a-z, 0-9, - and _",
         product is None or (isinstance(product, str) and bool(PRODUCT.fullmatch(product)))),
        (f"the release's version is not a whole number from 1 to {MAX_VERSION}",
         version is None or _whole(version, 1, MAX_VERSION)),
        ("the rating is not a low, a high and a noise, with one name",
         layout.RATING not in notes
         or (_rating(notes[layout.RATING]) and isinstance(labels, list) and len(labels) == 1
             and isinstance(labels[0], str))),
        ("exclusive is neither true nor false, or the tags are a rating",
         notes.get(layout.EXCLUSIVE, True) is True
         or (notes[layout.EXCLUSIVE] is False and layout.RATING not in notes)),
        ("an adapter's base is no digest, or it has no head",
         raw.get("kind") != layout.ADAPTER
         or (task is not None and bool(_DIGEST.fullmatch(str(notes.get("base")))))),
        ("files are not an object of texts",
         isinstance(files, dict) and all(isinstance(digest, str) for digest in files.values())
         and all(printable_name(name) for name in files)),
    ]  # fmt: skip
    return [problem for problem, valid in checks if not valid]


def printable_name(value: object, longest: int = LONGEST_NAME) -> bool:
    """Return whether a text is safe to print, because terminals interpret some characters."""
    return (
        isinstance(value, str)
        and len(value) <= longest
        and not any(unicodedata.category(character) in _HIDDEN for character in value)
        and _DIRECTIONAL.isdisjoint(value)
    )


def _rating(value: object) -> bool:
    if not isinstance(value, dict) or set(value) != {"low", "high", "noise"}:
        return False
    try:
        Rating(**value)
    except BundleFormatError:
        return False
    return True


def _whole(value: object, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
