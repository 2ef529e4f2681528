import inspect
import json

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer, models
from tokenizers import Tokenizer
from transformers import AutoModel, AutoModelForTextEncoding, PreTrainedTokenizerFast
from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

from fala import Bundle
from fala_export.base.errors import ExportError
from fala_export.bundle.backbone import export_encoder
from fala_export.models.load import load
from fala_export.models.saving import save_encoder
from fala_export.recipe.settings import ExportOptions, ModelSource
from families import (
    FAMILIES,
    LATER,
    LENGTH,
    READ_PADDING,
    READS_FORWARDS,
    write_early_folder,
    write_model,
)

pytestmark = pytest.mark.slow

TEXTS = [
    "A short one.",
    "",
    "  ",
    "The quick brown fox jumps over the lazy dog, and then it sleeps.",
    "zehn Äpfel, ÉCOLE",
    "вот Текст",
    "这是文本。",
    "नमस्ते عربي",
    "🙂👍🏽 ok",
    "one two three four five six seven eight nine ten " * 30,
    "[CLS] <s> [SEP] </s> <mask> [MASK]",
    "tabs\tand\nlines  and ends ",
    "brownfoxbrownfox" * 20,
]


thorough = pytest.mark.thorough


def export(folder, out, pooling="own", **options):
    """Export a folder in float32 at its full length; return the encoder and the bundle's."""
    encoder = load(str(folder), pooling)
    options = {"name": "x", "precision": "none", "max_length": encoder.longest, **options}
    export_encoder(encoder, out, ExportOptions(**options))
    return encoder, Bundle.open(out).backbone()


def embed(folder, texts, length, pooling=None):
    """Embed texts with the transformers library, including token types.

    By the folder's own tokenizer, in whose place version 5 makes another one for some families.
    """
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), pad_token=settings["pad_token"]
    )
    kind = AutoModelForTextEncoding if (folder.name == "t5") else AutoModel
    model = kind.from_pretrained(folder).eval()
    inputs = tokenizer(texts, padding=True, truncation=True, max_length=length, return_tensors="pt")
    if "token_type_ids" not in inspect.signature(model.forward).parameters:
        inputs.pop("token_type_ids", None)
    with torch.inference_mode():
        states = model(**inputs).last_hidden_state
    if pooling == "cls":
        return states[:, 0].numpy()
    if pooling == "lasttoken":
        return states[np.arange(len(texts)), inputs["attention_mask"].sum(1) - 1].numpy()
    mask = inputs["attention_mask"].unsqueeze(-1)
    return ((states * mask).sum(1) / mask.sum(1)).numpy()


#: One of them in every run, unlike BERT, which other tests export: a trace takes seconds a layer.
EACH = [
    ("qwen3", {"num_hidden_layers": 1}),
    *(pytest.param(family, {}, marks=thorough) for family in (*FAMILIES, *LATER)),
]


@pytest.mark.parametrize(("family", "settings"), EACH)
def test_a_bundle_has_the_embeddings_of_transformers(family, settings, tmp_path):
    if family not in MODEL_MAPPING_NAMES:
        pytest.skip(f"this version of transformers has no {family}")
    folder = write_model(tmp_path / family, family, **settings)
    chosen = "lasttoken" if family in READS_FORWARDS else "own"
    encoder, exported = export(folder, tmp_path / "x.fala", pooling=chosen)
    assert encoder.longest == LENGTH

    encodings = Tokenizer.from_str(encoder.tokenizer.decode()).encode_batch(TEXTS)
    own = Tokenizer.from_file(str(folder / "tokenizer.json"))
    own.no_truncation()
    own.no_padding()
    expected_ids = [encoding.ids for encoding in own.encode_batch(TEXTS)]
    assert [encoding.ids for encoding in encodings] == expected_ids
    assert {len(ids) > LENGTH for ids in expected_ids} == {True, False}

    expected = np.concatenate([embed(folder, [text], LENGTH, chosen) for text in TEXTS])
    if family not in READ_PADDING:
        np.testing.assert_allclose(exported.encode(TEXTS), expected, atol=1e-4)
        np.testing.assert_allclose(encoder.encode(TEXTS, LENGTH), expected, atol=1e-4)
    alone = np.concatenate([exported.encode([text]) for text in TEXTS])
    np.testing.assert_allclose(alone, expected, atol=1e-4)
    apart = np.linalg.norm(expected - expected[0], axis=1)[3:]
    assert apart.min() > 0.05  # texts differ, so agreement is no accident


LONGEST = [
    ("mpnet", {"max_position_embeddings": 30, "pad_token_id": 3}, 28),
    ("bert", {"max_position_embeddings": 30, "position_embedding_type": "relative_key"}, 30),
    ("bert", {"max_position_embeddings": 90}, LENGTH),  # what its tokenizer says
]


@pytest.mark.parametrize(("family", "settings", "longest"), LONGEST)
def test_a_model_has_positions_for_its_longest_length(family, settings, longest, tmp_path):
    encoder = load(str(write_model(tmp_path / family, family, **settings)), "own")
    assert encoder.longest == longest
    assert np.isfinite(encoder.encode(TEXTS, longest)).all()


@thorough
@pytest.mark.parametrize(("family", "settings", "longest"), LONGEST)
def test_the_longest_length_runs_and_one_more_token_fails(family, settings, longest, tmp_path):
    folder = write_model(tmp_path / family, family, **settings)
    encoder, exported = export(folder, tmp_path / "x.fala")
    assert encoder.longest == longest
    np.testing.assert_allclose(exported.encode(TEXTS), encoder.encode(TEXTS, longest), atol=1e-4)
    if longest < LENGTH:
        with pytest.raises((IndexError, RuntimeError)):
            encoder.encode(TEXTS, longest + 1)
    with pytest.raises(ExportError, match=f"1 to {longest} tokens"):
        export(folder, tmp_path / "y.fala", max_length=longest + 1)


def test_saved_truncation_and_padding_are_removed_from_the_tokenizer(tmp_path):
    folder = write_model(tmp_path / "bert")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(5)
    tokenizer.enable_padding(length=9)
    tokenizer.save(str(folder / "tokenizer.json"))
    encoder = load(str(folder), "own")
    exported_tokenizer = Tokenizer.from_str(encoder.tokenizer.decode())
    assert len(exported_tokenizer.encode(TEXTS[1])) == 2
    assert len(exported_tokenizer.encode(TEXTS[9])) > LENGTH
    expected = embed(folder, TEXTS, LENGTH)
    np.testing.assert_allclose(encoder.encode(TEXTS, LENGTH), expected, atol=1e-4)


@pytest.mark.thorough
def test_relative_positions_are_exact_beyond_the_traced_length(tmp_path):
    """The graph computes their buckets for each length, not only for the example's tokens."""
    for family in ("mpnet", "deberta-v2"):
        positions = 302 if family == "mpnet" else 300
        folder = write_model(tmp_path / family, family, max_position_embeddings=positions)
        settings = json.loads((folder / "tokenizer_config.json").read_text())
        (folder / "tokenizer_config.json").write_text(
            json.dumps(settings | {"model_max_length": 300})
        )
        encoder, exported = export(folder, tmp_path / "x.fala")
        assert encoder.longest == 300
        np.testing.assert_allclose(exported.encode(TEXTS), embed(folder, TEXTS, 300), atol=1e-4)


@pytest.mark.parametrize(
    "family", ["bert", "distilbert", "albert", "deberta-v2", "t5", "modernbert", "qwen3"]
)
def test_a_cut_model_has_the_states_of_the_first_layers(family, tmp_path):
    if family not in MODEL_MAPPING_NAMES:
        pytest.skip(f"this version of transformers has no {family}")
    folder = write_model(tmp_path / family, family)
    whole, cut = (load(ModelSource(str(folder), layers=layers), "mean") for layers in (2, 1))
    assert (whole.changed, cut.changed) == ({"layers": [2]}, {"layers": [1]})
    assert (cut.size < whole.size) == (family != "albert")  # its layers share their weights
    states = []
    for transformer in (whole.module.transformer, cut.module.transformer):
        last = []
        # The last norm of some families is after the last layer, whichever it is.
        norms = [module for name, module in transformer.named_modules()
                 if name in ("norm", "final_norm", "encoder.final_layer_norm")]  # fmt: skip
        for norm in norms:
            norm.register_forward_pre_hook(lambda _, given, last=last: last.append(given[0]))
        ids = torch.tensor([[3, 4, 5, 6]])
        with torch.inference_mode():
            output = transformer(
                ids, attention_mask=torch.ones_like(ids), output_hidden_states=True
            )
        states.append((last or [output.hidden_states[-1]], output.hidden_states))
    torch.testing.assert_close(states[1][0][0], states[0][1][1])
    with pytest.raises(ExportError, match="has 2 layers, so it cannot be cut after layer 3"):
        load(ModelSource(str(folder), layers=3), "own")


def test_a_sentence_transformers_folder_is_read_and_written(tmp_path):
    """Its steps set pooling and normalization, and the library reads what we save.

    The library's model is not loaded again: ``transformers`` 5 makes the tokenizers of some
    families anew, without the lower case that their file has.
    """
    settings = {"do_lower_case": True, "max_seq_length": 20}
    transformer = models.Transformer(str(write_model(tmp_path / "plain", "roberta")), **settings)
    steps = [transformer, models.Pooling(32, pooling_mode="cls"), models.Normalize()]
    model = SentenceTransformer(modules=steps, device="cpu")
    model.save(str(tmp_path / "saved"))
    encoder = load(str(tmp_path / "saved"), "own")
    assert (encoder.module.end.pooling, encoder.module.end.normalize) == ("cls", True)
    assert encoder.longest == model.max_seq_length == 20
    expected = model.encode(TEXTS)
    np.testing.assert_allclose(encoder.encode(TEXTS, encoder.longest), expected, atol=1e-5)
    save_encoder(encoder, tmp_path / "ours")
    ours = SentenceTransformer(str(tmp_path / "ours"), device="cpu")
    assert ours.max_seq_length == 20
    np.testing.assert_allclose(ours.encode(TEXTS), expected, atol=1e-5)


def test_folders_of_early_versions_are_read(tmp_path):
    settings = "sentence_roberta_config.json"
    old = write_early_folder(tmp_path / "old", "roberta", "cls_token", settings)
    expected = SentenceTransformer(str(old), device="cpu").encode(TEXTS)
    encoder = load(str(old), "own")
    assert (encoder.module.end.pooling, encoder.module.end.normalize) == ("cls", True)
    assert encoder.longest == 20
    np.testing.assert_allclose(encoder.encode(TEXTS, 20), expected, atol=1e-5)
    upper, lower = encoder.encode(["ONE two", "one two"], 20)
    np.testing.assert_array_equal(upper, lower)
