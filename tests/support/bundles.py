"""Tiny real bundles for tests: word vectors, and a transformer's outline in ONNX."""

import hashlib
import io
import json
import zipfile

import numpy as np
import pytest

from fala.bundle import format as layout
from fala.bundle.arrays import array_bytes
from fala.bundle.manifest import Manifest
from fala.bundle.reading import Bundle
from fala.bundle.writing import rounded
from fala.model.heads import Head, Lexical
from fala.model.links import LABELS
from fala.text.ngrams import BUCKETS
from fala_export import write_bundle, write_release
from fala_export.fit.words import fit_idf

DIMENSION = 8
WORDS = (
    "<unk>", "the", "a", "i", "you", "film", "is", "was", "good", "bad", "great", "awful", "love",
    "hate", "this", "that", "not", "do", "n't", "it", "'s", ".", ",", "!", "well", "made", "boring",
)  # fmt: skip
MAX_LENGTH = 16


def texts(n, seed=0):
    """Distinct texts of five of the words."""
    random = np.random.default_rng(seed)
    distinct = {" ".join(random.choice(WORDS[1:], size=5)) for _ in range(2 * n)}
    return sorted(distinct)[:n]


def word_vector_files(precision="float16", words=WORDS, dimension=DIMENSION, seed=0):
    """The files of a word-vector backbone, ``"float16"`` or ``"int8"``."""
    vectors = np.random.default_rng(seed).normal(size=(len(words), dimension)).astype(np.float32)
    files = {layout.VOCABULARY: ("\n".join(words) + "\n").encode()}
    if precision == "int8":
        scales = (np.abs(vectors).max(axis=1) / 127).astype(np.float32)
        files[layout.VECTORS] = array_bytes(np.round(vectors / scales[:, None]).astype(np.int8))
        files[layout.SCALES] = array_bytes(scales)
    else:
        files[layout.VECTORS] = array_bytes(vectors.astype(np.float16))
    return files


def word_vector_manifest(precision="float16", dimension=DIMENSION, **fields):
    return Manifest(**{
        "name": "tiny vectors", "kind": layout.WORD_VECTORS, "dimension": dimension,
        "precision": precision, **fields,
    })  # fmt: skip


def write_word_vectors(path, precision="float16", words=WORDS, dimension=DIMENSION, seed=0):
    """Write a word-vector backbone without a head, and open it."""
    files = word_vector_files(precision, words, dimension, seed)
    write_bundle(path, word_vector_manifest(precision, dimension), files)
    return Bundle.open(path)


def character_table(removed=(), spaces=(), apart=(), images=None, hangul=False):
    """A table of characters of a ``WordPiece``."""
    ranges = {"removed": removed, "spaces": spaces, "apart": apart}
    ranges = {kind: [list(each) for each in given] for kind, given in ranges.items()}
    return {**ranges, "images": images or {}, "hangul": hangul}


def static_settings(**changes):
    """How static embeddings read ASCII: in lower case, without control characters."""
    lower = {chr(code): chr(code).lower() for code in range(ord("A"), ord("Z") + 1)}
    control, blanks = [(0, 8), (14, 31), (127, 127)], [(9, 13), (32, 32)]
    tokenizer = {
        "unknown": "<unk>", "prefix": "##", "longest_word": 100,
        "normalized": character_table(removed=control, spaces=blanks, images=lower),
        "split": character_table(spaces=blanks, apart=[(33, 47), (58, 64), (91, 96), (123, 126)]),
        "added": [{"token": "[CLS]", "id": 1, "normalized": False}],
    }  # fmt: skip
    return {
        "tokenizer": tokenizer, "prompt": "", "normalized": False, "skips_unknown": True,
        "characters": None, **changes,
    }  # fmt: skip


def static_files(precision="int8", words=WORDS, dimension=DIMENSION, seed=0, **changes):
    """The files of static embeddings, ``"float16"`` or ``"int8"``."""
    files = word_vector_files(precision, words, dimension, seed)
    files[layout.STATIC_SETTINGS] = json.dumps(static_settings(**changes)).encode()
    return files


def static_manifest(precision="int8", dimension=DIMENSION, **fields):
    return word_vector_manifest(precision, dimension, kind=layout.STATIC, **fields)


def write_static_release(path, head=None, max_length=MAX_LENGTH, **fields):
    """Write a release of static embeddings, and open it."""
    write_bundle(path, static_manifest(max_length=max_length), static_files(**fields))
    write_release(path, Bundle.open(path), head or make_head(), {"head": "random"})
    return Bundle.open(path)


def tokenizer_json(words=WORDS):
    """A word-level tokenizer with BERT's special tokens."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *words[1:]]
    tokenizer = Tokenizer(
        models.WordLevel({token: id for id, token in enumerate(tokens)}, unk_token="[UNK]")
    )
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return tokenizer.to_str().encode()


def model_of(graph, **arrays):
    """An ONNX model of a graph in ONNX's own text syntax, and its constants by name."""
    from onnx import numpy_helper, parser

    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> tiny {graph}')
    for name, array in arrays.items():
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


def onnx_model(words=WORDS, dimension=DIMENSION, seed=1):
    """A graph that embeds tokens and takes their masked mean."""
    table = np.random.default_rng(seed).normal(size=(len(words) + 3, dimension))
    return model_of(
        f"""
        (int64[n, tokens_] input_ids, int64[n, tokens_] attention_mask)
        => (float[n, {dimension}] embedding) {{
            embedded = Gather (table, input_ids)
            mask = Cast <to = 1> (attention_mask)
            wide = Unsqueeze (mask, last)
            kept = Mul (embedded, wide)
            sum = ReduceSum <keepdims = 0> (kept, tokens)
            count = ReduceSum <keepdims = 1> (mask, tokens)
            mean = Div (sum, count)
            embedding = Tanh (mean)
        }}""",
        table=table.astype(np.float32), last=np.array([2]), tokens=np.array([1]),
    )  # fmt: skip


def onnx_files(words=WORDS, dimension=DIMENSION, seed=1):
    """The files of an ONNX backbone."""
    model = onnx_model(words, dimension, seed).SerializeToString(deterministic=True)
    return {layout.ONNX_MODEL: model, layout.TOKENIZER: tokenizer_json(words)}


def onnx_manifest(dimension=DIMENSION, **fields):
    return Manifest(**{
        "name": "tiny encoder", "kind": layout.ONNX, "dimension": dimension, "precision": "fp32",
        "max_length": MAX_LENGTH, "details": {"pad_id": 0}, **fields,
    })  # fmt: skip


def write_onnx(path, words=WORDS, dimension=DIMENSION, seed=1):
    """Write an ONNX backbone without a head, and open it."""
    write_bundle(path, onnx_manifest(dimension), onnx_files(words, dimension, seed))
    return Bundle.open(path)


def make_lexical(logits=1, seed=3):
    """A lexical view of a few texts and random weights, as a bundle holds it."""
    idf = fit_idf(["a good film", "a bad film", "it is well made", "I do n't love it"])
    weight = np.random.default_rng(seed).normal(size=(logits, BUCKETS)).astype(np.float32)
    return rounded(Lexical(idf, weight))


def make_head(
    task="classification", labels=("0", "1"), dimension=DIMENSION, seed=2, query=False,
    words=False, link=LABELS,
):  # fmt: skip
    """A head of random weights, with words or without."""
    rng = np.random.default_rng(seed)
    logits = link.count(labels)
    return Head(
        task,
        labels,
        weight=rng.normal(size=(logits, dimension)).astype(np.float32),
        bias=rng.normal(size=logits).astype(np.float32),
        query=rng.normal(size=dimension).astype(np.float32) if query else None,
        lexical=make_lexical(logits) if words else None,
        link=link,
    )


def write_word_vector_release(path, head=None, precision="float16", **fields):
    """Write a word-vector release, and open it."""
    backbone = write_word_vectors(path, precision, **fields)
    write_release(path, backbone, head or make_head(), {"head": "random"})
    return Bundle.open(path)


def write_onnx_release(path, head=None, **fields):
    """Write a release with an ONNX backbone, and open it."""
    backbone = write_onnx(path, **fields)
    write_release(path, backbone, head or make_head(), {"head": "random"})
    return Bundle.open(path)


def with_pattern(release, path, expression):
    """Write a release again whose tokenizer splits texts by a regular expression."""
    tokenizer = json.loads(Bundle.open(release).read(layout.TOKENIZER))
    tokenizer["pre_tokenizer"] = {
        "type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": False,
    }  # fmt: skip
    path.write_bytes(repacked(release, {layout.TOKENIZER: json.dumps(tokenizer).encode()}))
    return path


def archive_of(entries, compression=zipfile.ZIP_STORED):
    """A zip's bytes from (name, data) pairs; nothing is checked."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, data in entries:
            archive.writestr(zipfile.ZipInfo(name), data, compress_type=compression)
    return buffer.getvalue()


def entries_of(path):
    """The (name, data) pairs of a bundle."""
    with zipfile.ZipFile(path) as archive:
        return [(name, archive.read(name)) for name in archive.namelist()]


def repacked(path, changes=None, **manifest_fields):
    """A bundle's bytes with some files changed and the digests made to fit, by an attacker say.

    Args:
        path: The bundle.
        changes: New content by name; None takes the file away.
        manifest_fields: New values in the manifest.
    """
    entries = {**dict(entries_of(path)), **(changes or {})}
    files = {name: data for name, data in entries.items() if data is not None}
    manifest = json.loads(files.pop(layout.MANIFEST))
    manifest["files"] = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    manifest.update(manifest_fields)
    return archive_of([*files.items(), (layout.MANIFEST, json.dumps(manifest).encode())])


def renamed(data, old, new):
    """An archive with a name (str) replaced by bytes of the same length, in both headers."""
    assert len(old) == len(new)
    return data.replace(old.encode(), new)


def refused(path, error, match):
    """Opening raises exactly this class, names the file, and says what is wrong."""
    with pytest.raises(error, match=match) as caught:
        bundle = Bundle.open(path)
        bundle.backbone()
        bundle.head()
    assert type(caught.value) is error
    assert str(path) in str(caught.value)
