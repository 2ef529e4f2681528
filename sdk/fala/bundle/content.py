"""The content of a verified bundle: head, bridges, table of vectors, app's encoder, or adapter.

N-grams and an adapter's matrices take one byte per number, with a step per array or column.
All sites of an adapter have the same size. Each of its files contains one part of all sites,
stacked by layer; in each layer the attention's is before the output's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fala.audit import limits
from fala.audit.model import check_onnx
from fala.backbones import StaticEmbeddings, WordVectors
from fala.backbones.adapter import MAX_BOTTLENECK, AdapterWeights
from fala.base.errors import (
    BundleFormatError,
    BundleMismatchError,
    counted,
    safe_line,
)
from fala.base.examples import LARGEST, MATCHING, fault
from fala.bundle import format as layout
from fala.bundle.arrays import check_array, read_array
from fala.bundle.manifest import Manifest, read_json
from fala.model.bridge import Bridge
from fala.model.heads import Head, Lexical
from fala.text.ngrams import BUCKETS

_Floats = NDArray[np.float32]
#: Returns a file's verified bytes.
Read = Callable[[str], bytes]
#: The inputs of an encoder's probes, and the embeddings (n, d) expected of them.
Probes = tuple[list[str], _Floats]

#: Sub-layers of a layer, in the order of the files.
SUBLAYERS = ("attention", "output")

_MOST_SITES = len(SUBLAYERS) * layout.MAX_LAYERS
# The settings that decide how an adapter is run, with the values that this SDK supports.
_FORM: Mapping[str, tuple[object, ...]] = {
    "mh_adapter": (True,),
    "output_adapter": (True,),
    "non_linearity": ("swish", "silu"),
    "is_parallel": (False,),
    "scaling": (1, 1.0),
    "use_gating": (False,),
    "ln_before": (False,),
    "ln_after": (False,),
    "original_ln_before": (False,),
    "original_ln_after": (True,),
    "residual_before_ln": (True,),
    "adapter_residual_before_ln": (False,),
    "phm_layer": (False,),
}

#: The most inputs of an encoder's probes, and the most characters of each.
MOST_INPUTS, LONGEST_INPUT = 16, 1_000


@dataclass(frozen=True, eq=False)
class Content:
    """The content of a verified bundle besides its backbone; all files of a bundle can share it.

    Attributes:
        manifest: The bundle's manifest.
        head: The vendor's head; None for a backbone only.
        bridges: The bridges from earlier backbones, by those backbones' digests.
        probes: The probes of the app's encoder that it was made for: n inputs, and their embeddings
            (n, d); n may be 0.
    """

    manifest: Manifest
    head: Head | None
    bridges: Mapping[str, Bridge]
    probes: Probes = ([], np.zeros((0, 0), np.float32))

    @classmethod
    def of(cls, manifest: Manifest, read: Read) -> Content:
        """Read everything that a bundle has.

        Args:
            manifest: The bundle's manifest.
            read: Returns a file's verified bytes.

        Raises:
            BundleError: A file cannot be read, or does not fit the others.
        """
        if manifest.kind == layout.ONNX:
            check_onnx(read(layout.ONNX_MODEL))
        head, bridges = read_head(manifest, read), read_bridges(manifest, read)
        if manifest.kind == layout.ADAPTER:
            read_adapter(manifest, read)
        if manifest.kind != layout.EXTERNAL:
            return cls(manifest, head, bridges)
        return cls(manifest, head, bridges, read_probes(manifest.dimension, read))


def read_table(manifest: Manifest, read: Read) -> WordVectors | StaticEmbeddings:
    """Read a backbone whose kind is a table of vectors.

    Args:
        manifest: The bundle's manifest.
        read: Returns a file's verified bytes.

    Raises:
        BundleFormatError: A file cannot be read, or does not fit the others.
    """
    words = read(layout.VOCABULARY)
    if words.count(b"\n") > layout.MAX_WORDS:
        raise BundleFormatError(f"the vocabulary has more than {layout.MAX_WORDS} words")
    try:
        vocabulary = words.decode().removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise BundleFormatError("the vocabulary is not UTF-8") from error
    arrays = [
        read_array(read(name), name=name)
        for name in (layout.VECTORS, layout.SCALES) if name in manifest.files
    ]  # fmt: skip
    if manifest.kind == layout.WORD_VECTORS:
        return WordVectors(vocabulary, *arrays)
    data = read(layout.STATIC_SETTINGS)
    if len(data) > limits.STATIC_BYTES:
        raise BundleFormatError(
            f"{layout.STATIC_SETTINGS} has more than {limits.STATIC_BYTES} bytes"
        )
    settings = read_json(data, layout.STATIC_SETTINGS)
    return StaticEmbeddings(vocabulary, settings, *arrays, max_length=manifest.max_length)


def read_head(manifest: Manifest, read: Read) -> Head | None:
    """Read the vendor's head; None if the bundle is a backbone only.

    Args:
        manifest: The bundle's manifest.
        read: Returns a file's verified bytes.

    Raises:
        BundleFormatError: An array cannot be read, does not fit the labels, or is made for
            embeddings of another dimension.
    """
    if manifest.task is None:
        return None
    names = (layout.HEAD_WEIGHT, layout.HEAD_BIAS, layout.HEAD_QUERY, *layout.LEXICAL_FILES)
    arrays = {name: read_array(read(name), name=name) for name in names if name in manifest.files}
    lexical = None
    if layout.LEXICAL_WEIGHT in arrays:
        lexical = read_lexical(*(arrays[name] for name in layout.LEXICAL_FILES))
    weight = arrays[layout.HEAD_WEIGHT]
    wide = weight.ndim == 2 and weight.shape[1] == 2 * manifest.dimension
    head = Head(
        task=manifest.task,
        labels=manifest.labels,
        weight=weight,
        bias=arrays[layout.HEAD_BIAS],
        query=arrays.get(layout.HEAD_QUERY),
        lexical=lexical,
        dimension=manifest.dimension if wide and manifest.task == MATCHING else None,
        link=manifest.link,
    )
    if head.dimension != manifest.dimension:
        raise BundleFormatError(
            f"the head takes embeddings of {counted(head.dimension, 'dimension')}, the "
            f"backbone's have {manifest.dimension}"
        )
    blocks, scales = len(head.parts) + (lexical is not None), manifest.scales
    if scales and len(scales[0].blocks) != blocks:
        raise BundleFormatError(
            f"scales of {counted(len(scales[0].blocks), 'block')} for a head whose fit has "
            f"{blocks}; choose them again with fala-export scales"
        )
    return head


def read_lexical(idf: NDArray[Any], weight: NDArray[Any], scales: NDArray[Any]) -> Lexical:
    """Return the lexical view of the arrays in its files.

    Args:
        idf: Codes of the inverse document frequencies, uint8, shape (BUCKETS,).
        weight: Codes of the weights, int8, shape (C, BUCKETS).
        scales: The frequencies' step, then each logit's, float32, shape (1 + C,).

    Raises:
        BundleFormatError: An array is of another type or shape, or a number is not finite.
    """
    logits = len(weight)
    check_array(layout.LEXICAL_IDF, idf, np.uint8, (BUCKETS,))
    check_array(layout.LEXICAL_WEIGHT, weight, np.int8, (logits, BUCKETS))
    check_array(layout.LEXICAL_SCALES, scales, np.float32, (1 + logits,))
    if (scales < 0).any():
        raise BundleFormatError(f"{layout.LEXICAL_SCALES}: a step is negative")
    with np.errstate(over="ignore"):  # too large becomes infinite, which is rejected
        return Lexical(
            idf.astype(np.float32) * scales[0], weight.astype(np.float32) * scales[1:, None]
        )


def read_bridges(manifest: Manifest, read: Read) -> dict[str, Bridge]:
    """Read the bridges from earlier backbones, by those backbones' digests.

    Args:
        manifest: The bundle's manifest.
        read: Returns a file's verified bytes.

    Raises:
        BundleFormatError: An array cannot be read, does not fit the others, or a bridge does not
            lead to embeddings of this backbone's dimension.
    """
    bridges: dict[str, Bridge] = {}
    for name in manifest.files:
        folder, _, file = name.rpartition("/")
        if not name.startswith(layout.BRIDGES) or file != layout.BRIDGE_FILES[0]:
            continue
        source, files = folder.removeprefix(layout.BRIDGES), []
        for part in layout.BRIDGE_FILES:
            if (path := f"{folder}/{part}") not in manifest.files:
                raise BundleFormatError(f"this bundle has no file {safe_line(path, 80)}")
            with np.errstate(over="ignore"):  # too large becomes infinite, which a bridge rejects
                files.append(read_array(read(path), name=path).astype(np.float32))
        bridges[source] = bridge = Bridge(source, *files)
        if len(bridge.offset) != manifest.dimension:
            raise BundleFormatError(
                f"the bridge {source[:12]} leads to {counted(len(bridge.offset), 'dimension')}, "
                f"the backbone has {manifest.dimension}"
            )
    return bridges


def read_probes(dimension: int, read: Read) -> Probes:
    """Read the probes' inputs, and the embeddings expected of them, (n, dimension); n may be 0.

    Args:
        dimension: The manifest's dimension.
        read: Returns a file's bytes.

    Raises:
        BundleFormatError: The probes are invalid.
    """
    inputs = read_json(read(layout.ENCODER_INPUTS), layout.ENCODER_INPUTS)
    if (
        not isinstance(inputs, list)
        or len(inputs) > MOST_INPUTS
        or any(fault(text) or len(text) > LONGEST_INPUT for text in inputs)
    ):
        raise BundleFormatError(
            f"{layout.ENCODER_INPUTS} must have up to {MOST_INPUTS} texts of up to "
            f"{LONGEST_INPUT} characters"
        )
    embeddings = read_array(read(layout.ENCODER_EMBEDDINGS), name=layout.ENCODER_EMBEDDINGS)
    check_array(layout.ENCODER_EMBEDDINGS, embeddings, np.float32, (len(inputs), dimension))
    # Else they cannot be stored, or compared by cosine.
    if (np.abs(embeddings) > LARGEST).any() or not embeddings.any(axis=1).all():
        raise BundleFormatError(
            f"{layout.ENCODER_EMBEDDINGS}: a number is too large for float16, or all are 0"
        )
    return inputs, embeddings


def read_adapter(manifest: Manifest, read: Read) -> AdapterWeights:
    """Return the weights of an adapter's bundle, as inputs of a backbone.

    Args:
        manifest: The bundle's manifest.
        read: Returns a file's verified bytes.

    Raises:
        BundleMismatchError: The bundle is no adapter.
        BundleFormatError: A file cannot be read, or does not fit the others.
    """
    if manifest.kind != layout.ADAPTER:
        raise BundleMismatchError("the bundle is a backbone, not an adapter")
    check_config(read(layout.ADAPTER_CONFIG))
    names = [name for name in layout.ADAPTER_FILES if name != layout.ADAPTER_CONFIG]
    arrays = {name: read_array(read(name), name=name) for name in names}
    return read_weights(arrays, manifest.dimension)


def read_weights(arrays: Mapping[str, NDArray[Any]], dimension: int) -> AdapterWeights:
    """Return the inputs of a backbone, from the arrays in an adapter's files.

    Args:
        arrays: Arrays by the files' names.
        dimension: The embeddings' dimension, d.

    Returns:
        For every ``adapter.{l}.{attention,output}``: ``.down.weight`` (d, m), ``.down.bias`` (m,),
        ``.up.weight`` (m, d), ``.up.bias``, ``.norm.weight`` and ``.norm.bias`` (d,).

    Raises:
        BundleFormatError: An array is of another type or shape, or a number is not finite.
    """
    norm, bias = (arrays[layout.adapter_file(part)] for part in ("norm.weight", "down.bias"))
    sites = len(norm)
    if norm.ndim != 2 or bias.ndim != 2 or sites % len(SUBLAYERS) or not 0 < sites <= _MOST_SITES:
        raise BundleFormatError(
            f"an adapter of {counted(sites, 'site')}; two a layer are expected, of at most "
            f"{layout.MAX_LAYERS} layers"
        )
    size = bias.shape[1]
    if not 0 < size <= MAX_BOTTLENECK:
        raise BundleFormatError(f"a bottleneck of {size}; 1 to {MAX_BOTTLENECK} are expected")
    rows = {"down.weight": dimension, "up.weight": size}
    columns = {"down.weight": size, "down.bias": size}
    names = site_names(sites // len(SUBLAYERS))
    floats: dict[str, _Floats] = {}
    codes: dict[str, tuple[NDArray[np.int8], _Floats]] = {}
    for part in layout.ADAPTER_PARTS:
        width = columns.get(part, dimension)
        name = layout.adapter_file(part)
        stacked, dtype = arrays[name], np.int8 if part in rows else np.float32
        check_array(name, stacked, dtype, (sites * rows.get(part, 1), width))
        if part not in rows:
            floats |= {f"{site}.{part}": row for site, row in zip(names, stacked, strict=True)}
            continue
        name = layout.adapter_file(part, scales=True)
        scales = arrays[name]
        check_array(name, scales, np.float32, (sites, width))
        if (scales < 0).any():
            raise BundleFormatError(f"{name}: a step is negative")
        blocks = stacked.reshape(sites, rows[part], width)
        with np.errstate(over="ignore"):  # too large becomes infinite, which is rejected
            largest = np.abs(blocks.astype(np.float32)).max(axis=1) * scales
        if not np.isfinite(largest).all():
            raise BundleFormatError(f"{name}: a step is too large")
        codes |= {
            f"{site}.{part}": (block, step)
            for site, block, step in zip(names, blocks, scales, strict=True)
        }
    return AdapterWeights(floats, codes)


def check_config(data: bytes) -> dict[str, Any]:
    """Read an adapter's configuration, whose keys are those of the ``adapters`` library.

    Raises:
        BundleFormatError: Not JSON, or of an adapter that this SDK does not support.
    """
    if len(data) > layout.MAX_MANIFEST_BYTES:
        raise BundleFormatError("the adapter's configuration is larger than any real one")
    read = read_json(data, "the adapter's configuration")
    config = read.get("config") if isinstance(read, dict) else None
    if not isinstance(config, dict):
        raise BundleFormatError("the adapter's configuration has no config")
    for key, supported in _FORM.items():
        value = config.get(key)
        if not any(type(value) is type(each) and value == each for each in supported):
            raise BundleFormatError(
                f"an adapter whose {key} is {value!r:.40}; this SDK runs {supported[0]!r}"
            )
    return dict(read)


def site_names(layers: int) -> list[str]:
    """Return the names of the sites of a number of layers, in the order of the files."""
    return [f"adapter.{layer}.{sublayer}" for layer in range(layers) for sublayer in SUBLAYERS]
