"""A backbone that reads a text after a writer's prompt, and the rows that train it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import AutoModel, DynamicCache

from fala import DataError
from fala_export import ExportError, TransformerLearner, read_rows
from fala_export.models.load import load
from families import BERT_TOKENS, LENGTH, write_model
from public_data import write_rows
from studies.perplm.inputs import (
    PLAIN,
    UNKNOWN,
    Contexts,
    WriterBatches,
    WriterInputs,
    writers_of,
)
from studies.perplm.masked import MaskedBatches
from studies.perplm.model import cache_of
from studies.perplm.prompts import KINDS, PromptSettings
from studies.perplm.training import make_encoder
from writers import writers_rows

FAMILIES = ("bert", "roberta", "electra")
PLACES, COUNT = 9, 3  # of the texts


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return {family: write_model(folder / family, family) for family in FAMILIES}


@pytest.fixture(scope="module")
def encoders(folders):
    return {family: load(str(folder), "own") for family, folder in folders.items()}


@pytest.fixture
def learner(encoders):
    return TransformerLearner(encoders["bert"], 24)


def texts_of(encoder):
    ids = torch.randint(5, 60, (COUNT, PLACES), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    mask[1, 5:] = 0
    return ids.where(mask == 1, encoder.pad_id), mask


def make_prompted(encoder, kind, **settings):
    return make_encoder(encoder, PromptSettings(kind, length=4, **settings), COUNT, 0).eval()


def rows_of(path, rows):
    with write_rows(path, rows).open("rb") as stream:
        return read_rows(stream)


@pytest.mark.parametrize("mlp", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_prompts_at_every_layer_are_keys_and_values(family, mlp, encoders, folders):
    encoder = encoders[family]
    module, (ids, mask) = make_prompted(encoder, "soft-all", mlp=mlp), texts_of(encoder)
    with torch.inference_mode():
        module.prompts.table.add_(torch.randn(module.prompts.table.shape) * 0.1)
        numbers = torch.tensor([UNKNOWN, 1, 3])
        prefix = module.prefix(numbers)
        assert prefix.shape == (2, 2, COUNT, 2, 4, 16)
        # The library on the model's files, with positions that start after the prompt.
        theirs = AutoModel.from_pretrained(folders[family]).eval()(
            input_ids=ids,
            attention_mask=torch.cat([torch.ones(COUNT, 4, dtype=torch.long), mask], dim=1),
            position_ids=module.positions(mask),
            past_key_values=cache_of(prefix),
        )
        ours = module.states(ids, mask, numbers)
        torch.testing.assert_close(ours, theirs.last_hidden_state)
        assert (ours - module.states(ids, mask, numbers.flip(0))).abs().max() > 1e-3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_without_a_prompt_an_embedding_equals_the_backbone_s(family, kind, encoders):
    encoder = encoders[family]
    module, (ids, mask) = make_prompted(encoder, kind), texts_of(encoder)
    nothing = torch.zeros(COUNT, 3, dtype=torch.long)
    context = {"context": nothing, "context_mask": nothing} if kind.startswith("hard") else {}
    with torch.inference_mode():
        expected = encoder.module(ids, mask)
        plain = module(ids, mask, torch.full((COUNT,), PLAIN), **context)
        torch.testing.assert_close(plain, expected)
        if kind.startswith("soft"):
            unknown = module(ids, mask, torch.full((COUNT,), UNKNOWN))
            assert (unknown - expected).abs().max() > 1e-3
            # All writers start as the unknown one.
            torch.testing.assert_close(module(ids, mask, torch.arange(COUNT)), unknown)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_hard_prompt_equals_keys_and_values(family, encoders):
    encoder = encoders[family]
    module, (ids, mask) = make_prompted(encoder, "hard-static"), texts_of(encoder)
    context = torch.randint(5, 60, (6,), generator=torch.Generator().manual_seed(2))
    before, ones = context.expand(COUNT, -1), torch.ones(COUNT, 6, dtype=torch.long)
    compiled, positions = DynamicCache(), module.positions(ones)
    with torch.inference_mode():
        tokens = module.states(ids, mask, None, before, ones)
        encoder.module.transformer(
            input_ids=before, position_ids=positions, past_key_values=compiled
        )
        compiled_states = encoder.module.transformer(
            input_ids=ids,
            attention_mask=torch.cat([ones, mask], dim=1),
            position_ids=module.positions(mask),
            past_key_values=compiled,
        ).last_hidden_state
        torch.testing.assert_close(tokens, compiled_states)
        paper = make_prompted(encoder, "hard-static", both_ways=True)
        theirs = encoder.module.transformer(
            input_ids=torch.cat([before, ids], dim=1)[[0]],
            attention_mask=torch.cat([ones, mask], dim=1)[[0]],
        ).last_hidden_state[:, 6:]
        torch.testing.assert_close(paper.states(ids, mask, None, before, ones)[[0]], theirs)
        assert (theirs - tokens[[0]]).abs().max() > 1e-3


def test_other_backbones_and_positions_are_refused(tmp_path):
    encoder = load(str(write_model(tmp_path / "m", "distilbert")), "own")
    with pytest.raises(ExportError, match="not for a distilbert model"):
        make_prompted(encoder, "soft-all")
    settings = {"position_embedding_type": "relative_key"}
    encoder = load(str(write_model(tmp_path / "r", "bert", **settings)), "own")
    with pytest.raises(ExportError, match="positions are relative_key"):
        make_prompted(encoder, "soft-one")


def test_writers_of_few_rows_are_unknown(learner, tmp_path):
    rows = rows_of(tmp_path / "rows", [*writers_rows(texts=20)])
    few = rows_of(tmp_path / "few", [*writers_rows(texts=4, writers=4, first=90)])
    writers = writers_of([*rows, *few])
    assert "w90" not in writers and len(writers) == 6
    asked = [replace(rows[0], user=user) for user in (writers[0], writers[5], "w90", None)]
    assert WriterInputs(learner, asked, writers).numbers == [1, 6, 0, 0]
    with pytest.raises(DataError, match="have 0 users of 5 rows or more"):
        writers_of(few)


def test_hard_prompts_are_the_writer_s_own_texts_in_order(learner):
    texts = ["the lazy dog", "prices rose", "quick brown fox jumps", "nobody was surprised"]
    user_texts = {"ann": [*texts, texts[0]], "bob": ["very short"]}
    tokenizer = learner.tokenizer

    def decoded(contexts, text):
        return tokenizer.decode(contexts.tokens("ann", text, 10), skip_special_tokens=False)

    static = Contexts(learner, user_texts, 30)
    assert decoded(static, "another").startswith("[CLS] the lazy dog [SEP] prices")
    assert "prices" not in decoded(static, texts[1])  # not the input
    dynamic = Contexts(learner, user_texts, 30, [*texts, "very short"])
    similar = dynamic.tokens("ann", "a quick brown fox", 10)
    first = tokenizer.encode(texts[2], add_special_tokens=False).ids
    assert similar[1 : 1 + len(first)] == first
    assert static.tokens("nobody we know", "another", 10) == []


def test_the_input_is_never_truncated_for_a_prompt(learner, tmp_path):
    assert learner.encoder.longest == LENGTH
    user_texts = {"ann": [f"the quick brown fox {number}" for number in range(30)]}
    contexts = Contexts(learner, user_texts, 64)
    lengths = [len(contexts.tokens("ann", "x", size)) for size in (3, 24, 36, 37, 38, 40)]
    assert lengths == [LENGTH - 3, LENGTH - 24, 4, 3, 0, 0]  # no text fits into two tokens
    rows = rows_of(
        tmp_path / "rows",
        [
            {"user": "ann", "split": "train", "label": 1, "text": text}
            for text in ("short", "one two three four five six seven eight nine ten " * 4)
        ],
    )
    inputs = WriterInputs(learner, rows, ["ann"], contexts)
    batch = inputs.take([0, 1], [1, 1])
    plain = learner.token_ids([str(row.example) for row in rows])
    assert [
        ids[mask == 1].tolist() for ids, mask in zip(batch["ids"], batch["mask"], strict=True)
    ] == plain
    total = batch["mask"].sum(1) + batch["context_mask"].sum(1)
    assert all(LENGTH - 2 <= count <= LENGTH for count in total.tolist())
    assert inputs.take([0, 1], [UNKNOWN, 1])["context_mask"].sum(1).tolist()[0] == 0


def test_batches_drop_writers_reproducibly(learner, tmp_path):
    rows = rows_of(tmp_path / "rows", writers_rows(texts=100))
    inputs = WriterInputs(learner, rows, writers_of(rows))
    settings = PromptSettings("soft-all", writer_dropout=0.3, plain=0.2)
    batches = WriterBatches(inputs, 32, 0, settings, ([1] * len(rows), 2))
    numbers = [batches.batch(1, position)["writers"] for position in range(len(batches))]
    again = [batches.batch(1, position)["writers"] for position in range(len(batches))]
    assert all(torch.equal(first, second) for first, second in zip(numbers, again, strict=True))
    drawn = np.concatenate(numbers)
    assert abs((drawn == UNKNOWN).mean() - 0.3) < 0.06
    assert abs((drawn == PLAIN).mean() - 0.2) < 0.06
    whole = WriterBatches(inputs, 32, 0, None)
    ids = np.concatenate([whole.batch(0, position)["writers"] for position in range(len(whole))])
    assert sorted(ids) == sorted(inputs.numbers)
    assert batches.batch(0, 0)["shares"].shape == (32, 1)
    three = WriterBatches(inputs, 32, 0, None, ([2] * len(rows), 3)).batch(0, 0)["shares"]
    assert three.tolist() == [[0, 0, 1]] * 32


def test_masking_excludes_special_tokens(learner, tmp_path):
    rows = rows_of(tmp_path / "rows", writers_rows(texts=60))
    inner = WriterBatches(WriterInputs(learner, rows, writers_of(rows)), 32, 0, None)
    masked = MaskedBatches(learner, inner, 0)
    hidden_count = shown = tokens = 0
    for position in range(len(masked)):
        batch, true = masked.batch(0, position), inner.batch(0, position)
        hidden = batch["hidden"] != -100
        assert torch.equal(batch["hidden"][hidden], true["ids"][hidden])
        assert torch.equal(batch["ids"][~hidden], true["ids"][~hidden])
        marks = [learner.tokenizer.token_to_id(mark) for mark in BERT_TOKENS]
        free = ~torch.isin(true["ids"], torch.tensor(marks))
        assert not (hidden & ~free).any()
        hidden_count += int(hidden.sum())
        shown += int((batch["ids"] == learner.tokenizer.token_to_id("[MASK]")).sum())
        tokens += int(free.sum())
    assert 0.12 < hidden_count / tokens < 0.18
    assert 0.7 < shown / hidden_count < 0.9
    assert not torch.equal(masked.batch(0, 0)["ids"], masked.batch(1, 0)["ids"])
    assert torch.equal(masked.batch(1, 0)["ids"], masked.batch(1, 0)["ids"])
