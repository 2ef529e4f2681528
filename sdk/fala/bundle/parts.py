"""What a bundle's files are: its backbone and head, and what lies beside them.

Every function takes the manifest and what gives a file's verified bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fala.backbones import Backbone, WordVectors
from fala.bundle import format as layout
from fala.bundle.arrays import read_array
from fala.bundle.encoder import load_encoder
from fala.bundle.lexical import read_lexical
from fala.bundle.manifest import Manifest
from fala.bundle.prompts import prompt_state, read_prompts
from fala.errors import BundleFormatError, BundleMismatchError, DimensionError
from fala.examples import MATCHING
from fala.model.bridge import Bridge
from fala.model.heads import Head
from fala.model.lexical import Lexical
from fala.model.prior import PopulationPrior

#: Gives a file's verified bytes, by its name.
Read: TypeAlias = Callable[[str], bytes]


def base_of(manifest: Manifest) -> str | None:
    """The digest of the backbone that an adapter was made for; None of other bundles."""
    return str(manifest.details["base"]) if manifest.kind == layout.ADAPTER else None


def scales_of(manifest: Manifest) -> tuple[float, ...] | None:
    """The scales of the fit's blocks that public annotators chose; None where none are told."""
    told = manifest.details.get("scales")
    if not isinstance(told, list) or not told:
        return None
    return tuple(float(scale) for scale in told)


def load_backbone(manifest: Manifest, read: Read) -> Backbone:
    """Load the backbone; see ``Bundle.backbone``."""
    if (base := base_of(manifest)) is not None:
        raise BundleMismatchError(
            f"an adapter, which has no backbone of its own; it is for {base[:12]}"
        )
    backbone: Backbone
    if manifest.kind in (layout.ONNX, layout.ORT):
        encoder = load_encoder(manifest, read)
        if (prompts := load_prompts(manifest, read)) is not None:
            encoder.check_state(prompt_state(prompts[0]))
        backbone = encoder
    else:
        words = read(layout.VOCABULARY)
        if words.count(b"\n") > layout.MAX_WORDS:
            raise BundleFormatError(f"a vocabulary of more than {layout.MAX_WORDS} words")
        try:
            vocabulary = words.decode().removesuffix("\n").split("\n")
        except UnicodeDecodeError as error:
            raise BundleFormatError("the vocabulary is not UTF-8") from error
        scales = _array(read, layout.SCALES) if layout.SCALES in manifest.files else None
        backbone = WordVectors(vocabulary, _array(read, layout.VECTORS), scales)
    if backbone.dimension != manifest.dimension:
        raise DimensionError(
            f"the backbone's embeddings have {backbone.dimension} dimensions, "
            f"the manifest says {manifest.dimension}"
        )
    return backbone


def load_head(manifest: Manifest, read: Read) -> Head | None:
    """Load the head, checked; see ``Bundle.head``."""
    if manifest.task is None:
        return None
    weight = _array(read, layout.HEAD_WEIGHT)
    wide = weight.ndim == 2 and weight.shape[1] == 2 * manifest.dimension
    head = Head(
        task=manifest.task,
        labels=manifest.labels,
        weight=weight,
        bias=_array(read, layout.HEAD_BIAS),
        query=_array(read, layout.HEAD_QUERY) if layout.HEAD_QUERY in manifest.files else None,
        lexical=_lexical(manifest, read),
        dimension=manifest.dimension if wide and manifest.task == MATCHING else None,
    )
    if head.dimension != manifest.dimension:
        raise DimensionError(
            f"the head takes embeddings of {head.dimension} dimensions, "
            f"the backbone gives {manifest.dimension}"
        )
    return head


def check_scales(manifest: Manifest, head: Head | None) -> None:
    """Check that a release tells a scale for every block of its head, and one for the slope.

    Raises:
        BundleFormatError: It tells others.
    """
    scales = scales_of(manifest)
    if head is None or scales is None:
        return
    expected = len(head.parts) + (head.lexical is not None) + 1
    if len(scales) != expected:
        raise BundleFormatError(
            f"{len(scales)} scales for a head whose fit has {expected}; choose them anew "
            "with fala-export prior"
        )


def load_bridges(manifest: Manifest, read: Read) -> dict[str, Bridge]:
    """Load the bridges, by where they start; see ``Bundle.bridges``."""
    bridges: dict[str, Bridge] = {}
    for name in manifest.files:
        folder, _, file = name.rpartition("/")
        if name.startswith(layout.BRIDGES) and file == layout.BRIDGE_FILES[0]:
            source = folder.removeprefix(layout.BRIDGES)
            parts = [_floats(read, f"{folder}/{part}") for part in layout.BRIDGE_FILES]
            bridge = Bridge(source, *parts)
            if len(bridge.offset) != manifest.dimension:
                raise DimensionError(
                    f"the bridge {source[:12]} leads to {len(bridge.offset)} dimensions, "
                    f"the backbone has {manifest.dimension}"
                )
            bridges[source] = bridge
    return bridges


def load_prior(manifest: Manifest, read: Read) -> PopulationPrior | None:
    """Load the population prior; see ``Bundle.prior``."""
    if layout.PRIOR_MEAN not in manifest.files:
        return None
    names = (layout.PRIOR_MEAN, layout.PRIOR_VARIANCE, layout.PRIOR_FACTORS)
    prior = PopulationPrior(*(_floats(read, name) for name in names))
    if prior.dimension != manifest.dimension or len(manifest.labels) != 2:
        raise DimensionError(
            f"the prior is for a head of two labels on {prior.dimension} dimensions; the "
            f"bundle has {len(manifest.labels)} labels on {manifest.dimension}"
        )
    return prior


def load_prompts(manifest: Manifest, read: Read) -> NDArray[np.float16] | None:
    """Load the writers' prompts; see ``Bundle.prompts``."""
    if layout.PROMPT_PREFIXES not in manifest.files:
        return None
    try:
        return read_prompts(read(layout.PROMPT_PREFIXES), manifest)
    except BundleFormatError as error:
        raise BundleFormatError(f"{layout.PROMPT_PREFIXES}: {error}") from error


def _lexical(manifest: Manifest, read: Read) -> Lexical | None:
    if layout.LEXICAL_WEIGHT not in manifest.files:
        return None
    return read_lexical(*(_array(read, name) for name in layout.LEXICAL_FILES))


def _floats(read: Read, name: str) -> NDArray[np.float32]:
    # What does not fit float32 becomes infinite, which bridge and prior refuse.
    with np.errstate(over="ignore"):
        return _array(read, name).astype(np.float32)


def _array(read: Read, name: str) -> NDArray[Any]:
    try:
        return read_array(read(name))
    except BundleFormatError as error:
        raise BundleFormatError(f"{name}: {error}") from error
