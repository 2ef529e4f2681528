from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModel

from fala import Counts, DataError, Report, Stopped
from fala.solver.minimum import FitCost
from fala_sim.data.users import User
from fala_sim.methods import fala_paper
from fala_sim.methods.adapter import Adapter
from fala_sim.methods.fala_shipped import joined_reports
from fala_sim.methods.lora import Lora
from fala_sim.methods.matrix import Matrix
from fala_sim.methods.matrix_tuning import tune_head
from fala_sim.methods.method import EFFORT
from fala_sim.methods.quality import decisions, figures_of, label_figures, positions
from fala_sim.methods.registry import find_method
from fala_sim.methods.solve_flops import fit_flops
from fala_sim.records.meter import Stage
from situations import NEW_DIMENSION, OLD_DIMENSION, situation

FIT = FitCost(size=3, numbers=12, gram=0, logits=2, steps=1, directions=5, factors=1)
CASES = (("classification", 2), ("classification", 3), ("matching", 2))

SETTINGS = {
    "top": {"learning_rate": 0.03, "epochs": 30},
    "fala-paper": {"top_k": 10, "lambda": 0.1, "learning_rate": 0.01},
    "procrustes": {"centre": 0, "unit": 0, "scale": "none"},
    "affine": {"rank": OLD_DIMENSION, "ridge": 0.1},
    "knn": {"k": 10, "temperature": 0.1},
    "logistic": {"C": 10.0},
}
NAMES = tuple(SETTINGS)


def accuracy(where, logits):
    return label_figures(logits, positions(where.user.test_labels, where.labels))["accuracy"]


def vendor_logits(where, examples):
    return where.new.head.vendor_model().logits(where.new.inputs(examples))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("task", "labels"), CASES[1:])
def test_learns_a_planted_preference(name, task, labels):
    where = situation(task, labels, train=300)
    scores = find_method(name).fit(where, SETTINGS[name])
    vendor = accuracy(where, vendor_logits(where, where.user.test))
    assert accuracy(where, scores(where.user.test)) > vendor + 0.05


def test_the_top_layer_learns_ratings():
    where = situation("rating", train=300)
    scores = find_method("top").fit(where, SETTINGS["top"])
    test, truth = where.user.test, where.user.test_labels
    ours, vendor = (
        figures_of(where.new.head, logits, truth)
        for logits in (scores(test), vendor_logits(where, test))
    )
    assert ours["rmse"] < 0.5 * vendor["rmse"]
    assert ours["rank_correlation"] > vendor["rank_correlation"] + 0.1


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("task", "labels"), CASES)
def test_equals_the_vendors_model_without_examples(name, task, labels):
    where = situation(task, labels, train=0)
    scores = find_method(name).fit(where, SETTINGS[name])
    expected = vendor_logits(where, where.user.test)
    np.testing.assert_array_equal(scores(where.user.test), expected)
    assert where.meter.fields()["total"]["forward_passes"] == 0


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("task", "labels", "train", "one_class"),
    [
        ("classification", 2, 1, False),
        ("classification", 3, 2, False),
        ("matching", 2, 12, True),
    ],
)
def test_logits_are_finite_for_very_few_examples(name, task, labels, train, one_class):
    where = situation(task, labels, train=train, test=40, one_class=one_class)
    for settings, scores in find_method(name).search(where):
        logits = scores(where.user.test)
        assert logits.shape == (40, 1 if labels == 2 else labels), settings
        assert np.isfinite(logits).all(), settings


@pytest.mark.parametrize("name", ["knn", "logistic"])
def test_one_label_alone_leaves_the_vendors_model(name):
    where = situation(one_class=True)
    scores = find_method(name).fit(where, SETTINGS[name])
    np.testing.assert_array_equal(scores(where.user.test), vendor_logits(where, where.user.test))


@pytest.mark.parametrize("name", ["knn", "logistic"])
def test_a_label_without_examples_is_never_predicted(name):
    where = situation(labels=3)
    rows = [i for i, label in enumerate(where.user.train_labels) if label != "b"]
    user = where.user
    user = User(
        user.name, [user.train[i] for i in rows], [user.train_labels[i] for i in rows],
        user.test, user.test_labels,
    )  # fmt: skip
    where = replace(where, user=user)
    scores = find_method(name).fit(where, SETTINGS[name])
    assert set(decisions(scores(user.test)).tolist()) == {0, 2}


@pytest.mark.parametrize("name", NAMES)
def test_a_search_tries_the_common_number_of_settings_without_forward_passes(name):
    where = situation(train=20)
    tried = [settings for settings, _ in find_method(name).search(where)]
    assert len({tuple(sorted(settings.items())) for settings in tried}) == len(tried) == EFFORT
    assert "forward" not in where.meter.stages


@pytest.mark.parametrize("name", NAMES)
def test_passes_every_text_forward_once(name):
    where = situation("matching", train=60)
    find_method(name).fit(where, SETTINGS[name])
    texts = {text for match in where.user.train for text in (*match.history, match.candidate)}
    total = where.meter.fields()["total"]
    assert total["forward_passes"] == len(texts)
    assert total["backward_passes"] == 0
    assert where.meter.stored_bytes > 0


def test_the_papers_fala_counts_selection_solve_and_tuning():
    where = situation(train=100)
    find_method("fala-paper").fit(where, SETTINGS["fala-paper"])
    stages = where.meter.stages
    assert list(stages) == ["forward", "select", "solve", "tune"]
    assert stages["select"].forward_flops >= 4 * 100**2 * NEW_DIMENSION
    assert stages["solve"].forward_flops > 0
    # 30 epochs; a multiply-add is two.
    assert stages["tune"].forward_flops == 30 * 100 * 2 * NEW_DIMENSION
    assert stages["tune"].backward_flops > stages["tune"].forward_flops
    assert where.meter.stored_bytes == 4 * (NEW_DIMENSION + 1)
    batch = where.meter.batch
    assert batch["examples"] == 32
    assert batch["forward_flops"] == pytest.approx(32 * (8e3 + 2 * NEW_DIMENSION))
    assert 0 < batch["backward_flops"] < batch["forward_flops"]


@pytest.mark.parametrize(("task", "labels"), CASES)
def test_the_papers_fala_untuned_is_equation_1(task, labels, monkeypatch):
    monkeypatch.setattr(fala_paper, "_EPOCHS", 0)
    where = situation(task, labels, train=60)
    scores = find_method("fala-paper").fit(where, SETTINGS["fala-paper"])
    inputs = where.new.inputs(where.user.train)
    chosen = fala_paper.medoids(where, inputs, 10)
    targets = where.old_logits([where.user.train[index] for index in chosen])
    expected = np.empty((300, targets.shape[1]))
    for row, (w, b) in enumerate(zip(where.new.head.weight, where.new.head.bias, strict=True)):
        E = (inputs[chosen] * w).astype(np.float64)
        gram = E.T @ E / len(chosen) + 0.1 * np.eye(NEW_DIMENSION)
        theta = np.linalg.solve(gram, E.T @ (targets[:, row] - b) / len(chosen))
        expected[:, row] = (where.new.inputs(where.user.test) * w) @ theta + b
    np.testing.assert_allclose(scores(where.user.test), expected, atol=1e-5)


def test_medoids_are_one_example_of_each_cluster():
    where = situation(train=80)
    inputs = where.new.inputs(where.user.train)
    few, many = (fala_paper.medoids(where, inputs, top_k) for top_k in (20, 2))
    assert len(set(few.tolist())) == len(few) < len(many) < 80


def test_tuning_reaches_the_minimum_of_the_cross_entropy():
    where = situation(train=400, labels=3)
    noise = np.random.default_rng(0).permutation(where.user.train_labels).tolist()
    where = replace(where, user=replace(where.user, train_labels=noise))  # the minimum is finite
    inputs, labels = where.new.inputs(where.user.train), where.label_shares()
    point = {"theta": np.zeros((3, NEW_DIMENSION)), "bias": np.zeros(3), "weight": 1.0}
    for rate in (0.03, 0.003, 0.0003):
        point["theta"], point["bias"] = tune_head(
            where, inputs, **point, learning_rate=rate, epochs=100, tune_bias=True
        )
    z = inputs @ point["theta"].T + point["bias"]
    share = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    assert np.abs((share - labels).T @ inputs / 400).max() < 5e-3
    assert np.abs((share - labels).mean(axis=0)).max() < 5e-3


def test_tuning_the_matrix_leaves_the_bias():
    where = situation(train=50)
    head = where.new.head
    start = Matrix(head, np.ones_like(head.weight), np.array([0.7]))
    inputs = where.new.inputs(where.user.train)
    tuned = fala_paper.tune_matrix(where, inputs, start, 0.01)
    assert tuned.bias.tolist() == start.bias.tolist()
    assert not np.allclose(tuned.theta, start.theta)


@pytest.mark.parametrize("n", [5, 40])
@pytest.mark.parametrize("labels", [2, 3])
def test_the_papers_ridge_is_the_minimum_of_its_objective(n, labels):
    """By the normal equations, with more and with fewer examples than dimensions."""
    where = situation(labels=labels)
    head, inputs = where.new.head, where.new.inputs(where.user.train[:n])
    z = where.old_logits(where.user.train[:n])
    theta = Matrix.solved(head, inputs, z, 0.1).theta
    for row, weight, bias, target in zip(theta, head.weight, head.bias, z.T, strict=True):
        features = inputs.astype(float) * weight
        slope = features.T @ (features @ row + bias - target) / n + 0.1 * row
        np.testing.assert_allclose(slope, 0, atol=1e-6)


def test_operations_of_a_fit_follow_from_its_sizes():
    # A Hessian of 3 columns and its factor, five directions and a step of two logits.
    assert fit_flops(FIT) == 3 * 12 + 3**3 / 3 + 2 * 2 * (5 * 2 * 12 + 12)
    # A Gram matrix is made once, and a direction is a product with it.
    dual = replace(FIT, gram=30, factors=2)
    assert fit_flops(dual) == 2 * 30 + 2 * 3**3 / 3 + 2 * 2 * (5 * 3**2 + 12)


def test_a_report_includes_the_refinements_of_its_replacement():
    """The two reports are unchanged."""
    first = Report(
        "glove", "bert", "vendor", "too early", examples=40, forward_passes=5,
        losses={"vendor": 0.7, "personal": 0.8}, seconds={"solve": 1.0},
        counts=Counts(representatives=5, scales=(1.0,), fits=(FIT,),
                      peak_memory={"solve": 10, "load": 5}),
    )  # fmt: skip
    more = Report(
        "bert", "bert", "personal", "better", forward_passes=3, losses={"personal": 0.5},
        stopped=Stopped.BUDGET, seconds={"solve": 0.5, "commit": 0.1},
        counts=Counts(representatives=8, scales=(2.0,), fits=(FIT, FIT),
                      peak_memory={"solve": 12}),
    )  # fmt: skip
    whole = joined_reports(first, more)
    assert (whole.old, whole.new, whole.examples) == ("glove", "bert", 40)
    assert whole.forward_passes == 8
    counts = whole.counts
    assert counts.fits == (FIT, FIT, FIT)
    assert (whole.decision, whole.losses) == ("personal", {"personal": 0.5})
    assert (counts.representatives, counts.scales, whole.stopped) == (8, (2.0,), Stopped.BUDGET)
    assert whole.seconds == {"solve": 1.5, "commit": 0.1}
    assert counts.peak_memory == {"solve": 12, "load": 5}
    assert first.seconds == {"solve": 1.0}


def test_procrustes_of_equal_dimensions_equals_scipys():
    import scipy.linalg

    random = np.random.default_rng(0)
    new, old = random.normal(size=(2, 40, 5))
    fitted = find_method("procrustes").fit_map(new, old, SETTINGS["procrustes"], Stage())
    np.testing.assert_allclose(
        fitted.matrix, scipy.linalg.orthogonal_procrustes(new, old)[0], atol=1e-6
    )


@pytest.mark.parametrize(("wide", "narrow"), [(7, 4), (4, 7)])
def test_procrustes_keeps_angles_between_unequal_dimensions(wide, narrow):
    random = np.random.default_rng(0)
    new, old = random.normal(size=(30, wide)), random.normal(size=(30, narrow))
    matrix = find_method("procrustes").fit_map(new, old, SETTINGS["procrustes"], Stage()).matrix
    gram = matrix.T @ matrix if wide > narrow else matrix @ matrix.T
    np.testing.assert_allclose(gram, np.eye(4), atol=1e-5)


def test_an_affine_map_of_full_rank_is_ridge_regression():
    from sklearn.linear_model import Ridge

    random = np.random.default_rng(0)
    new, old = random.normal(size=(30, 7)), random.normal(size=(30, 4))
    fitted = find_method("affine").fit_map(new, old, {"rank": 4, "ridge": 0.5}, Stage())
    spread = np.sum((new - new.mean(axis=0)) ** 2) / 7
    peer = Ridge(alpha=0.5 * spread).fit(new, old)
    np.testing.assert_allclose(fitted(new.astype("f4")), peer.predict(new), atol=1e-5)


def test_an_affine_map_has_the_requested_rank_and_the_least_error():
    random = np.random.default_rng(0)
    new, old = random.normal(size=(30, 7)), random.normal(size=(30, 4))
    fitted = find_method("affine").fit_map(new, old, {"rank": 2, "ridge": 1e-9}, Stage())
    assert np.linalg.matrix_rank(fitted.matrix, tol=1e-5) == 2
    # Without a penalty the best map of rank 2 leaves the fitted values' last singular values.
    x, y = new - new.mean(axis=0), old - old.mean(axis=0)
    full = x @ np.linalg.lstsq(x, y, rcond=None)[0]
    least = np.sum((y - full) ** 2) + np.sum(np.linalg.svd(full)[1][2:] ** 2)
    assert np.sum((fitted(new.astype("f4")) - old) ** 2) == pytest.approx(least, rel=1e-4)


def test_neighbours_score_the_smoothed_votes_of_the_nearest():
    where = situation(train=50)
    scores = find_method("knn").fit(where, {"k": 5, "temperature": 1e6})
    inputs = where.new.inputs(where.user.train)
    text = where.user.test[0]
    embedding = where.new.embeddings[text]
    cosines = inputs @ embedding / np.linalg.norm(inputs, axis=1)
    votes = [where.user.train_labels[i] for i in np.argsort(-cosines)[:5]]
    expected = np.log((votes.count("b") + 0.5) / (votes.count("a") + 0.5))
    assert scores([text])[0, 0] == pytest.approx(expected, abs=1e-4)


#: Kinds of transformers whose layers have weights of their own.
KINDS = ("bert", "camembert", "deberta-v2", "distilbert", "electra", "mpnet", "roberta")


def small_model(kind):
    """A transformer of two layers and 64 dimensions, with random weights."""
    sizes = {"dim": 64, "hidden_dim": 64, "n_layers": 2, "n_heads": 2}
    if kind != "distilbert":
        names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
        sizes = {**dict(zip(names, sizes.values(), strict=True)), "embedding_size": 64}
    return AutoModel.from_config(AutoConfig.for_model(kind, vocab_size=50, **sizes))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_adapters_are_in_every_layer_of_every_kind_and_begin_near_the_identity(kind):
    model = small_model(kind).eval()
    ids = torch.arange(5, 15)[None]
    before = model(ids).last_hidden_state
    adapted = Adapter.adapt(model)
    trained = {name for name, parameter in adapted.named_parameters() if parameter.requires_grad}
    bottlenecks = [name for name in trained if ".down." in name or ".up." in name]
    assert len(bottlenecks) == 2 * 2 * 4
    norms = trained - {*bottlenecks}
    assert len(norms) == 2 * 2 * 2 and not any(name.startswith("embeddings") for name in norms)
    after = adapted.eval()(ids).last_hidden_state
    assert 0 < (after - before).abs().max() < 0.05
    adapted.train()(ids).last_hidden_state.square().sum().backward()
    for name, parameter in adapted.named_parameters():
        assert name not in bottlenecks or parameter.grad.abs().sum() > 0


def test_adapters_need_layers_with_weights_of_their_own():
    with pytest.raises(DataError, match=r"layers share their weights.*leave adapter out"):
        Adapter.adapt(small_model("albert"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["albert", *KINDS])
def test_lora_trains_queries_and_values_of_every_kind_that_is_exported(kind):
    trained = [
        name for name, p in Lora.adapt(small_model(kind)).named_parameters() if p.requires_grad
    ]
    layers = 1 if kind == "albert" else 2  # whose layers share their weights
    assert len(trained) == layers * 2 * 2
    assert all("lora_" in name for name in trained)
