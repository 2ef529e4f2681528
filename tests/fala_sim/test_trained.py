from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("peft")

import torch

from fala import DataError, Match
from fala.model.heads import Head
from fala.model.links import LABELS, TAGS
from fala_export.base.errors import ExportError
from fala_sim.methods.adapter import Adapter
from fala_sim.methods.full import Full
from fala_sim.methods.lora import Lora
from fala_sim.methods.method import EFFORT
from fala_sim.methods.training.loop import UserTraining
from fala_sim.methods.training.transformer import open_encoder
from fala_sim.records.meter import Meter
from families import write_model
from trained import DIMENSION, LENGTH, documents, make_head, make_situation, matches

pytestmark = pytest.mark.slow

METHODS = (Full, Adapter, Lora)
SETTINGS = {"learning_rate": 1e-2, "epochs": 8}


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    """A user with documents and a vendor's head of random weights."""
    examples, labels = documents(64, seed=1)
    folder = tmp_path_factory.mktemp("classifier") / "new"
    return make_situation(folder, examples, labels, make_head(scale=0.1), documents(40, seed=2))


@pytest.fixture(scope="module")
def matcher(tmp_path_factory):
    """A user with histories and a vendor's head with an attention query."""
    examples, labels = matches(64, seed=1)
    head = make_head("matching", query=True, scale=0.1)
    folder = tmp_path_factory.mktemp("matcher") / "new"
    return make_situation(folder, examples, labels, head, matches(40, seed=2))


def fresh(situation, **changes):
    return replace(situation, meter=Meter(), **changes)


def loss(logits, labels):
    sign = np.where(np.array(labels) == "1", 1.0, -1.0)
    return float(np.logaddexp(0, -sign * logits[:, 0]).mean())


def accuracy(logits, labels):
    return float(np.mean((logits[:, 0] > 0) == (np.array(labels) == "1")))


def begin(situation, method, rate=1e-3):
    return UserTraining(situation, situation.transformer, method.adapt, rate)


@pytest.mark.parametrize(("task", "method"), [("classifier", Adapter), ("matcher", Full)])
def test_training_beats_the_vendors_model(task, method, request):
    situation = fresh(request.getfixturevalue(task))
    user = situation.user
    vendor = begin(fresh(situation), method).scores
    before = loss(vendor(user.train), user.train_labels)
    chance = accuracy(vendor(user.test), user.test_labels)
    scores = method().fit(situation, SETTINGS)
    assert loss(scores(user.train), user.train_labels) < 0.7 * before
    assert accuracy(scores(user.test), user.test_labels) > max(0.85, chance + 0.1)


@pytest.mark.parametrize("link", [LABELS, TAGS])
def test_three_labels_train_by_softmax_and_tags_together(link, tmp_path):
    """Each tag has a logit. A text has either one tag or all three."""

    def named(labels):
        if link is LABELS:
            return [{"0": "a", "1": "c"}[label] for label in labels]
        return [frozenset({"a"} if label == "0" else {"a", "b", "c"}) for label in labels]

    random = make_head(labels=("a", "b", "c"), scale=0.1)
    head = Head("classification", random.labels, random.weight, random.bias, link=link)
    (train, labels), (test, held_out) = documents(64, seed=1), documents(40, seed=2)
    where = make_situation(tmp_path / "new", train, named(labels), head, (test, named(held_out)))
    logits = Full().fit(where, SETTINGS)(test)
    decided = logits == logits.max(axis=1, keepdims=True) if link is LABELS else logits > 0
    right = decided == head.label_shares(named(held_out))
    assert (right.mean(axis=0) > 0.85).all()


def test_a_search_trains_once_per_rate_and_equals_fit(classifier):
    tried = {}
    for settings, scores in Lora().search(fresh(classifier)):
        torch.rand(7)  # what others draw between epochs changes nothing
        tried[tuple(settings.values())] = scores(classifier.user.test)
    assert len(tried) == EFFORT
    assert [dict(zip(("learning_rate", "epochs"), key, strict=True)) for key in tried] == list(
        Lora().grid(classifier)
    )
    rate = Lora.rates[1]
    fitted = Lora().fit(fresh(classifier), {"learning_rate": rate, "epochs": 2})
    np.testing.assert_array_equal(fitted(classifier.user.test), tried[rate, 2])
    assert not np.array_equal(tried[rate, 1], tried[rate, 2])


def test_a_seed_determines_the_logits(classifier):
    logits = [
        Lora().fit(fresh(classifier, seed=seed), {"learning_rate": 1e-3, "epochs": 1})(
            classifier.user.test
        )
        for seed in (0, 0, 1)
    ]
    np.testing.assert_array_equal(logits[0], logits[1])
    assert np.abs(logits[0] - logits[2]).max() > 1e-6


@pytest.mark.parametrize("method", METHODS)
def test_training_changes_and_stores_exactly_the_trainable_parameters(method, classifier):
    """How many an adapter has decides its FLOPs, which ``test_flops.py`` checks."""
    situation = fresh(classifier)
    training = begin(situation, method)
    parameters = dict(training._network.named_parameters())
    before = {name: parameter.detach().clone() for name, parameter in parameters.items()}
    training.epoch()
    training.epoch()
    for name, parameter in parameters.items():
        assert torch.equal(parameter, before[name]) != parameter.requires_grad, name
    trained = {name: p.numel() for name, p in parameters.items() if p.requires_grad}
    assert {"weight", "bias"} <= set(trained)
    assert situation.meter.stored_bytes == 4 * sum(trained.values())


@pytest.mark.parametrize("task", ["classifier", "matcher"])
def test_an_untrained_model_has_the_vendors_logits(task, request):
    """Through the laboratory's head, and through the network that trains."""
    situation = fresh(request.getfixturevalue(task))
    training, examples = begin(situation, Full), list(situation.user.train[:20])
    texts = sorted(training._batches.tokens)
    vectors = training._encoder.encode(texts, LENGTH)
    head = situation.new.head
    inputs = head.inputs(examples, dict(zip(texts, vectors, strict=True)))
    expected = head.vendor_model().logits(inputs)
    np.testing.assert_allclose(training.scores(examples), expected, atol=1e-5)
    training._network.eval()
    with torch.no_grad():
        trained = training._network(examples, training._batches.tokens)
    np.testing.assert_allclose(trained.numpy(), expected, atol=1e-5)


@pytest.mark.parametrize("query", [False, True])
def test_a_reader_without_a_history_gets_the_bias(query, tmp_path):
    examples = [Match((), "quick fox"), Match(("lazy dog", "brown"), "fox"), Match((), "prices")]
    head = make_head("matching", query=query)
    situation = make_situation(tmp_path / "new", examples, ["0", "1", "1"], head)
    training = begin(situation, Full)
    training._network.eval()
    logits = training._network(examples, training._batches.tokens)
    np.testing.assert_allclose(logits[[0, 2], 0].detach(), [head.bias[0]] * 2, atol=1e-6)
    np.testing.assert_allclose(logits.detach(), training.scores(examples), atol=1e-5)
    alone = training._network(examples[:1], training._batches.tokens)
    np.testing.assert_allclose(alone.detach(), logits[:1].detach(), atol=1e-6)


def test_passes_and_stages_are_counted(classifier):
    situation = fresh(classifier)
    Full().fit(situation, {"learning_rate": 1e-4, "epochs": 3})
    meter = situation.meter
    assert list(meter.stages) == ["load", "train"]
    train = meter.stages["train"]
    assert train.forward_passes == train.backward_passes == 3 * 64
    assert train.seconds > 0
    assert train.backward_flops == pytest.approx(2 * train.forward_flops, rel=0.01)
    assert meter.batch["examples"] == 16
    assert meter.batch["tokens"] == LENGTH
    assert train.forward_flops < 3 * 6 * meter.batch["forward_flops"]


def test_a_batch_of_matches_embeds_a_shared_history_once(matcher):
    situation = fresh(matcher)
    training = begin(situation, Lora)
    training.epoch()
    passes = situation.meter.stages["train"].forward_passes
    user = situation.user
    batches = [user.train[start : start + 16] for start in range(0, len(user.train), 16)]
    assert passes == sum(
        len({text for match in batch for text in (*match.history, match.candidate)})
        for batch in batches
    )
    assert passes < sum(len(match.history) + 1 for match in user.train) / 2


def test_an_epoch_has_every_document_once_in_batches_of_similar_length(classifier):
    examples, labels = documents(500, seed=4)
    situation = fresh(
        classifier, user=replace(classifier.user, train=examples, train_labels=labels)
    )
    training = begin(situation, Full)
    batches = training._batches.of_epoch(0)[1]
    assert sorted(row for rows in batches for row in rows) == list(range(500))
    lengths = np.array([len(training._batches.tokens[example]) for example in examples])
    padded = sum(len(rows) * lengths[rows].max() for rows in batches)
    assert padded < 1.15 * lengths.sum()
    firsts = [lengths[rows].max() for rows in batches]
    assert firsts != sorted(firsts)


def test_a_user_without_examples_keeps_the_vendors_model(classifier):
    situation = fresh(classifier, user=replace(classifier.user, train=[], train_labels=[]))
    scores = Full().fit(situation, {"learning_rate": 1e-3, "epochs": 2})
    vendor = begin(fresh(classifier), Full).scores
    np.testing.assert_array_equal(scores(situation.user.test), vendor(situation.user.test))
    assert situation.meter.stages["train"].forward_passes == 0


def test_embeddings_equal_the_bundles(tmp_path):
    pytest.importorskip("onnx")
    from fala import Bundle
    from fala_export.bundle.backbone import export_encoder
    from fala_export.models.load import load
    from fala_export.models.sentence_encoder import SentenceEncoder
    from fala_export.recipe.settings import ExportOptions

    folder = write_model(tmp_path / "model", "roberta")
    loaded = load(str(folder), "own")
    module = SentenceEncoder(loaded.module.transformer, "cls")
    module.end.normalize = True
    encoder = replace(loaded, model=module.eval())
    options = ExportOptions(name="x", precision="none", max_length=LENGTH)
    export_encoder(encoder, tmp_path / "b.fala", options)
    texts = ["The quick brown fox", "", "one two three " * 30, "Prices rose; nobody was surprised!"]
    expected = Bundle.open(tmp_path / "b.fala").backbone().encode(texts)
    opened = open_encoder(folder, tmp_path / "b.fala")
    assert opened.longest == LENGTH
    np.testing.assert_allclose(opened.encode(texts, LENGTH), expected, atol=1e-4)
    assert opened.encode([], LENGTH).shape == (0, DIMENSION)


def test_untrainable_transformers_are_rejected(classifier, tmp_path):
    with pytest.raises(DataError, match="is only a bundle; name the folder"):
        Full().fit(fresh(classifier, transformer=None), SETTINGS)
    with pytest.raises(DataError, match="is only a bundle"):
        next(Lora().search(fresh(classifier, transformer=None)))
    examples, labels = documents(4, seed=1)
    plain = make_situation(tmp_path / "a", examples, labels, make_head(), details={"pad_id": 0})
    with pytest.raises(DataError, match="its pooling is None"):
        Full().fit(plain, SETTINGS)
    wide = write_model(tmp_path / "wide", hidden_size=48)
    with pytest.raises(ExportError, match="it has 48 dimensions"):
        Full().fit(fresh(classifier, transformer=wide), SETTINGS)
