import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy.special import expit

import export_command
from bundles import make_head, write_onnx, write_word_vector_release
from fala import Bundle, DataError
from fala.model.links import Rating
from fala.solver.gaussian import BIAS_DEVIATION
from fala_export import add_prior
from fala_export.embedding import Embedder
from fala_export.fitting.device_fit import (
    BIAS_SCALE,
    DENSE_SCALE,
    Inputs,
    TrainingSet,
    blocks_of,
    fit_device,
)
from fala_export.fitting.population.annotators import gather_annotators
from fala_export.fitting.population.choice import ESTIMATES, _devices_loss, choose_prior, cut
from fala_export.fitting.population.estimation import Gaussian, find_mode, isotropic, whiten
from fala_export.population import processes
from public_data import write_rows
from public_people import FILMS, verdicts
from training_sets import make_prior

pytestmark = pytest.mark.slow

D = 6
WEIGHT = np.array([1.5, -1.0, 0.5, 0.0, 0.0, 1.0], dtype=np.float32)
BIAS = -0.3
DIRECTION = np.array([0.0, 0.6, 0.0, 0.8, 0.0, 0.0])


def population(people=100, rows=30, along=0.0, bias=0.0, mean=None, seed=0):
    """Rows of people who differ in one direction and in their biases, as arrays."""
    rng = np.random.default_rng(seed)
    names = np.repeat([f"person {number}" for number in range(people)], rows)
    inputs = rng.normal(size=(people * rows, D)).astype(np.float32)
    mean = np.zeros(D + 1) if mean is None else mean
    weights = WEIGHT + mean[:-1] + along * rng.normal(size=(people, 1)) * DIRECTION
    biases = BIAS + mean[-1] + bias * rng.normal(size=people)
    logits = (inputs * weights.repeat(rows, axis=0)).sum(axis=1) + biases.repeat(rows)
    return inputs, (rng.random(len(logits)) < expit(logits)).astype(float), names.tolist()


def gather(inputs, labels, names):
    logits = inputs.astype(float) @ WEIGHT.astype(float) + BIAS
    return gather_annotators(inputs, None, logits, labels, names)


def chosen(annotators):
    estimates = []
    choice = choose_prior(annotators, estimates.append)
    assert sum(estimates) == ESTIMATES
    return choice


def covariance(prior):
    return np.diag(prior.variance) + prior.factors.T @ prior.factors


@pytest.fixture(scope="module")
def population_rows():
    mean = np.array([0.0, 0.0, 0.0, 0.0, 0.7, 0.0, 0.5])
    return population(along=1.5, bias=1.2, mean=mean, seed=1)


@pytest.fixture(scope="module")
def choice(population_rows):
    return chosen(gather(*population_rows))


def test_a_planted_population_is_recovered(choice):
    full = covariance(choice.prior)
    _, vectors = np.linalg.eigh(full[:-1, :-1])
    assert abs(vectors[:, -1] @ DIRECTION) > 0.98
    assert full[-1, -1] ** 0.5 == pytest.approx(1.2, abs=0.2)
    assert choice.prior.mean[4] == pytest.approx(0.7, abs=0.15)
    assert choice.prior.mean[-1] == pytest.approx(0.5, abs=0.25)


def test_the_prior_has_a_lower_held_out_loss_than_the_vendors_head(choice):
    assert choice.candidate.directions is not None
    assert choice.losses[choice.candidate] == min(choice.losses.values())
    assert choice.losses[choice.candidate] < choice.vendor - 0.05
    start = [value for key, value in choice.losses.items() if key.directions is None]
    assert choice.losses[choice.candidate] < min(*start, choice.devices)


def test_the_devices_prior_is_measured_with_the_devices_fit():
    """With inputs far from 0, the devices' prior does not change the mean logit."""
    inputs, labels, names = population(people=20, rows=20, bias=1.0, seed=10)
    near = [_devices_loss(a) for a in gather(inputs, labels, names)]
    logits = inputs.astype(float) @ WEIGHT.astype(float) + BIAS
    far = gather_annotators(inputs + 7, None, logits, labels, names)
    np.testing.assert_allclose([_devices_loss(a) for a in far], near, rtol=1e-3)
    still = [_devices_loss(replace(a, extra_covariance=0 * a.extra_covariance)) for a in far]
    assert np.abs(np.subtract(still, near)).mean() > 0.01  # slopes are fitted, too


def test_annotators_are_fitted_as_devices_fit():
    """The kernels of embeddings, words and slope are equal."""
    head = make_head(words=True)
    rng = np.random.default_rng(11)
    texts = rng.choice(FILMS, 400).tolist()
    words = head.words(texts)
    inputs = rng.normal(size=(400, head.dimension)).astype(np.float32)
    logits = head.vendor_model().logits(inputs, words).astype(float)
    labels = (rng.random(400) < expit(1.5 * logits[:, 0] + 0.5)).astype(float)
    names = [f"person {number % 20}" for number in range(400)]
    annotator = gather_annotators(inputs, words, logits[:, 0], labels, names)[3]
    rows = np.flatnonzero(np.array(names) == annotator.name)
    rows = rows[np.lexsort((labels[rows], logits[rows, 0]))]
    blocks = blocks_of(head, Inputs(inputs[rows]), words.take(rows), None)
    training = TrainingSet(blocks, head.bias, labels[rows, None], np.full((len(rows), 1), np.nan))
    full = fit_device(training).full
    fitted = inputs[rows] @ full.weights[0].T + words.take(rows).times(full.weights[1]) + full.bias
    centred = inputs[rows] - inputs[rows].mean(axis=0)
    products = (centred @ centred.T).astype(float)
    kernel = DENSE_SCALE * products / np.diag(products).mean() + BIAS_SCALE * BIAS_DEVIATION**2
    kernel += annotator.extra_covariance
    mode = find_mode(kernel, annotator.logits, annotator.labels, None)
    np.testing.assert_allclose(annotator.logits + kernel @ mode.dual, fitted[:, 0], atol=1e-3)


def test_several_processes_choose_as_one_does(population_rows, choice):
    with processes() as run:
        parallel = choose_prior(gather(*population_rows), lambda _: None, run)
        # Large arrays are not copied to each process.
        assert list(run(type, [np.zeros(1 << 18)] * 2)) == [np.memmap] * 2
    for one, other in zip(
        (parallel.prior, *parallel.held_out), (choice.prior, *choice.held_out), strict=True
    ):
        np.testing.assert_equal(vars(one), vars(other))
    assert (parallel.losses, parallel.candidate) == (choice.losses, choice.candidate)


def test_no_prior_is_chosen_if_the_vendors_head_is_better():
    choice = chosen(gather(*population(people=40, rows=20, seed=3)))
    assert choice.prior is None and set(choice.held_out) == {None}
    assert re.search(r"with the vendor's head alone.*isotropic prior", choice.details()["refused"])


def test_the_order_of_rows_changes_nothing():
    inputs, labels, names = population(people=20, along=1.5, bias=1.2, seed=1)
    choice = chosen(gather(inputs, labels, names))
    order = np.random.default_rng(4).permutation(len(names))
    again = chosen(gather(inputs[order], labels[order], [names[index] for index in order]))
    assert again.candidate == choice.candidate
    assert again.vendor == pytest.approx(choice.vendor, rel=1e-9)
    np.testing.assert_allclose(again.prior.mean, choice.prior.mean, atol=1e-5)
    np.testing.assert_allclose(covariance(again.prior), covariance(choice.prior), atol=1e-5)


def test_a_planted_population_of_ratings_is_recovered():
    """Ratings around the vendor's logit, of people who differ in a direction and in biases."""
    rng = np.random.default_rng(12)
    link, names = Rating(-20.0, 20.0, 0.8), np.repeat(np.arange(60), 30)
    inputs = rng.normal(size=(len(names), D)).astype(np.float32)
    moved = (0.5 * rng.normal(size=(60, 1)) * DIRECTION)[names]
    biases = (0.3 + 0.6 * rng.normal(size=60))[names]
    logits = inputs.astype(float) @ WEIGHT + BIAS
    stars = logits + (inputs * moved).sum(axis=1) + biases + 0.8 * rng.normal(size=len(names))
    choice = chosen(gather_annotators(inputs, None, logits, stars, names.astype(str), link))
    full = covariance(choice.prior)
    assert choice.losses[choice.candidate] < min(choice.vendor, choice.devices)
    assert full[-1, -1] ** 0.5 == pytest.approx(0.6, abs=0.12)
    assert choice.prior.mean[-1] == pytest.approx(0.3, abs=0.2)
    assert abs(np.linalg.eigh(full[:-1, :-1])[1][:, -1] @ DIRECTION) > 0.95


def test_a_mode_of_ratings_is_the_ridge_regression():
    rng = np.random.default_rng(13)
    inputs, stars, link = rng.normal(size=(20, D)), rng.normal(size=20), Rating(-9.0, 9.0, 0.5)
    mode = find_mode(inputs @ inputs.T, np.ones(20), stars, None, link)
    ridge = np.linalg.solve(inputs.T @ inputs + 0.25 * np.eye(D), inputs.T @ (stars - 1))
    np.testing.assert_allclose(inputs.T @ mode.dual, ridge, atol=1e-10)
    np.testing.assert_allclose(mode.curvature, 4.0)


def test_annotators_need_ten_rows():
    inputs, labels, names = population(people=25, rows=10)
    assert len(gather(inputs, labels, names)) == 25
    names[0] = None
    assert len(gather(inputs, labels, names)) == 24
    few = [names[index] if index % 10 < 9 or index < 190 else None for index in range(250)]
    with pytest.raises(DataError, match=r"18 of 25 public annotators.*needs 20.*isotropic prior"):
        gather(inputs, labels, few)


def test_the_isotropic_prior_gives_logits_the_same_variance_at_any_scale():
    inputs, labels, names = population(people=20, rows=10)
    for scale in (0.01, 1.0, 50.0):
        annotators = gather((scale * inputs + 3).astype(np.float32), labels, names)
        together = np.concatenate([annotator.inputs for annotator in annotators]).astype(float)
        spread = isotropic(annotators).covariance
        centred = together - together.mean(axis=0)
        assert np.mean((centred @ spread * centred).sum(axis=1)) == pytest.approx(0.8, rel=1e-3)
        assert spread[-1, -1] == 1


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
def test_the_gradient_is_zero_at_a_mode(scale):
    rng = np.random.default_rng(5)
    inputs = rng.normal(size=(30, D)) * scale
    labels = (rng.random(30) < 0.2).astype(float)
    expected = 5 * rng.normal(size=30)
    kernel = inputs @ inputs.T
    for start in (None, rng.normal(size=30)):
        mode = find_mode(kernel, expected, labels, start)
        pull = inputs.T @ (labels - expit(expected + kernel @ mode.dual) - mode.dual)
        assert np.abs(pull).max() < 1e-3 * scale * 30


def test_whitened_rows_have_the_laplace_covariance():
    rng = np.random.default_rng(6)
    inputs = rng.normal(size=(9, 4))
    curvature = rng.uniform(0.01, 0.25, size=9)
    rows = inputs.astype(np.float32)
    whiten(inputs @ inputs.T, curvature, rows)
    posterior = np.linalg.inv(np.eye(4) + (inputs.T * curvature) @ inputs)
    np.testing.assert_allclose(np.eye(4) - rows.T @ rows, posterior, atol=1e-6)


def test_a_cut_keeps_variances_and_leading_directions():
    rng = np.random.default_rng(7)
    root = rng.normal(size=(D + 1, D + 1))
    full = Gaussian(rng.normal(size=D + 1), root @ root.T)
    for directions in (0, 2, 50):
        prior = cut(full, directions, 1.0)
        assert len(prior.factors) == min(directions, D + 1)
        np.testing.assert_allclose(np.diag(covariance(prior)), np.diag(full.covariance), rtol=1e-3)
    np.testing.assert_allclose(covariance(prior), full.covariance, rtol=1e-3, atol=1e-3)
    _, vectors = np.linalg.eigh(full.covariance)
    factor = cut(full, 1, 1.0).factors[0]
    assert abs(factor @ vectors[:, -1]) == pytest.approx(np.linalg.norm(factor), rel=1e-5)


def test_a_factor_is_of_the_weights_and_not_of_the_bias():
    root = np.random.default_rng(8).normal(size=(D + 1, D + 1))
    full = Gaussian(np.zeros(D + 1), root @ root.T)
    whole, quarter = covariance(cut(full, 3, 1.0)), covariance(cut(full, 3, 0.25))
    np.testing.assert_allclose(quarter[:-1, :-1], whole[:-1, :-1] / 4, rtol=1e-4)
    np.testing.assert_allclose(quarter[-1, :-1], whole[-1, :-1] / 2, rtol=1e-4)
    assert quarter[-1, -1] == pytest.approx(whole[-1, -1], rel=1e-5)


@pytest.fixture(scope="module")
def release(folder):
    return write_word_vector_release(folder / "release.fala", make_head())


@pytest.fixture(scope="module")
def rows(folder, release):
    return write_rows(folder / "rows.jsonl", verdicts(release))


works = partial(export_command.works, "prior")
failed = partial(export_command.failed, "prior")


def test_a_release_gets_a_prior(folder, release, rows):
    out = folder / "with prior.fala"
    command = ("prior", "--release", release.path, "--data", rows, "--out", out)
    summary = export_command.done(*command)
    written = Bundle.open(out)
    prior = written.prior()
    details = written.manifest.details["prior"]
    assert details == summary["prior"]
    assert (details["annotators"], details["rows"]) == (30, 450)
    assert len(prior.factors) == details["k"]
    assert covariance(prior)[-1, -1] ** 0.5 == pytest.approx(details["bias_deviation"], abs=1e-4)
    assert summary["bytes_added"] == out.stat().st_size - release.path.stat().st_size > 0
    assert release.prior() is None
    assert written.backbone_digest == release.backbone_digest


def test_the_release_itself_is_written_again_without_out(folder, release, rows):
    copy = folder / "copy.fala"
    copy.write_bytes(release.path.read_bytes())
    shown = works("--release", copy, "--data", rows).stdout
    assert "450 rows of 30 annotators" in shown
    assert [line.endswith("chosen") for line in shown.splitlines()].count(True) == 1
    first = copy.read_bytes()
    assert Bundle.open(copy).prior() is not None
    works("--release", copy, "--data", rows)
    assert copy.read_bytes() == first


def test_a_matcher_gets_a_prior(folder):
    release = write_word_vector_release(folder / "matcher.fala", make_head("matching"))
    rows = write_rows(folder / "matches.jsonl", verdicts(release, matching=True))
    works("--release", release.path, "--data", rows)
    assert Bundle.open(release.path).prior() is not None


def test_a_release_has_no_prior_if_none_is_better(folder, release):
    """The summary reports it, and the release has the scales of a device without a prior."""
    rows = write_rows(folder / "alike.jsonl", verdicts(release, rows_each=30, spread=0))
    earlier = write_word_vector_release(folder / "alike.fala", make_head())
    add_prior(earlier.path, earlier, make_prior(d=earlier.manifest.dimension), {})
    shown = works("--release", earlier.path, "--data", rows).stdout
    assert "no prior: no population prior is better on held-out annotators" in shown
    written = Bundle.open(earlier.path)
    assert written.prior() is None
    assert "cross-entropy" in written.manifest.details["prior"]["refused"]
    (at_10, at_20) = written.scales
    assert (at_10.labels, at_20.labels, len(at_20.numbers)) == (10, 20, 3)


def test_too_few_annotators_are_refused_before_their_texts_are_embedded(
    folder, release, monkeypatch
):
    monkeypatch.setattr(Embedder, "embed", lambda *_: pytest.fail("the texts were embedded"))
    named = verdicts(release, people=19)
    rows = write_rows(folder / "few.jsonl", named)
    before = release.path.read_bytes()
    error = failed("--release", release.path, "--data", rows)
    assert "trained on does not count" in error and "Leave it out" in error
    assert "19 of 19 public annotators" in error and "isotropic prior" in error
    nameless = write_rows(folder / "nobody.jsonl", [{**row, "user": None} for row in named])
    assert "0 of 0 public annotators" in failed("--release", release.path, "--data", nameless)
    assert release.path.read_bytes() == before


def test_releases_without_a_head_of_two_labels_are_refused(folder, rows):
    bare = write_onnx(folder / "bare.fala")
    assert "has no head" in failed("--release", bare.path, "--data", rows)
    three = write_word_vector_release(folder / "three.fala", make_head(labels=("0", "1", "2")))
    assert "has labels 0, 1, 2" in failed("--release", three.path, "--data", rows)


def test_rows_of_another_task_or_other_labels_are_refused(folder, release, rows):
    matcher = write_word_vector_release(folder / "other.fala", make_head("matching"))
    error = failed("--release", matcher.path, "--data", rows)
    assert "rows are for classification" in error and "matching" in error
    named = [{**row, "label": "yn"[row["label"]]} for row in verdicts(release)]
    error = failed("--release", release.path, "--data", write_rows(folder / "yn.jsonl", named))
    assert "line 1: label" in error and "does not fit the head's classification" in error
