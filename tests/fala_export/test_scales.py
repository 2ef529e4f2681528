import itertools
from collections import Counter

import numpy as np
import pytest
from scipy.special import expit
from threadpoolctl import threadpool_info

from bundles import make_head, write_word_vector_release
from export_command import done, failed, works
from fala import Bundle
from fala.model.heads import Head
from fala.model.losses import cross_entropy
from fala.model.prior import PopulationPrior
from fala_export.fitting import samples
from fala_export.fitting.device_fit import Inputs, LeftOut, TrainingSet, blocks_of, fit_device
from fala_export.fitting.population import annotators as annotators_module
from fala_export.fitting.population import learning
from fala_export.fitting.population import scales as scales_module
from fala_export.fitting.population.annotators import gather_annotators
from fala_export.fitting.population.choice import FOLDS, choose_prior
from fala_export.fitting.population.estimation import estimate, isotropic
from fala_export.fitting.population.learning import annotated
from fala_export.fitting.population.scales import (
    GRID,
    SLOPES,
    AnnotatedRows,
    choose_scales,
    training_sets,
    trials,
)
from fala_export.population import processes
from fala_export.rows.user_rows import Row
from public_data import write_rows
from public_people import verdicts

pytestmark = pytest.mark.slow


D = 6


def matcher(rng):
    """A head of two blocks of D inputs."""
    weight = rng.normal(size=(1, 2 * D)).astype(np.float32)
    return Head("matching", ("0", "1"), weight, np.zeros(1, np.float32), dimension=D)


def people(head, variances, count=40, rows=60, seed=1, slope=0.0):
    """Rows of people whose weights vary around the head's, as arrays.

    A block's variance is of the logits, as its scale is; the slope's is a standard deviation.
    """
    rng = np.random.default_rng(seed)
    names = np.repeat([f"person {number}" for number in range(count)], rows)
    inputs = rng.normal(size=(count * rows, head.weight.shape[1])).astype(np.float32)
    deviations = np.concatenate([np.full(head.dimension, (v / D) ** 0.5) for v in variances])
    slopes = 1 + slope * rng.normal(size=(count, 1))
    weights = slopes * head.weight + deviations * rng.normal(size=(count, len(deviations)))
    logits = (inputs * weights.repeat(rows, axis=0)).sum(axis=1) + head.bias
    labels = (rng.random(len(logits)) < expit(logits)).astype(float)
    return inputs, labels[:, None], names.tolist()


def logits_of(head, inputs):
    return inputs.astype(float) @ head.weight.T.astype(float) + head.bias


def sets_of(head, data, logits=None):
    inputs, labels, names = data
    logits = logits_of(head, inputs) if logits is None else logits
    rows = AnnotatedRows(head, inputs, None, logits, labels, names)
    return training_sets(rows, dict.fromkeys(names))


def test_the_planted_spread_is_chosen():
    head = make_head(dimension=D)
    ticks = []
    sets = sets_of(head, people(head, [10.0], count=24))
    scales = choose_scales(sets, ticks.append)
    with processes() as run:
        assert choose_scales(sets, run=run) == scales
    assert len(scales) == 2
    assert abs(GRID.index(scales[0]) - GRID.index(10.0)) <= 1
    assert sum(ticks) == 24 * trials(1)


def test_every_block_has_a_scale_of_its_own():
    head = matcher(np.random.default_rng(2))
    first, second, _ = choose_scales(sets_of(head, people(head, [0.03, 3.0], count=20)))
    assert first <= 0.1 and second >= 1.0


def test_people_who_differ_only_in_slopes_have_a_slope_scale():
    head = make_head(dimension=D)
    block, slope = choose_scales(sets_of(head, people(head, [0.0], slope=0.5)))
    assert block <= 0.1 and slope == SLOPES[-1]


def test_people_who_agree_with_the_vendor_have_small_scales():
    head = make_head(dimension=D)
    block, slope = choose_scales(sets_of(head, people(head, [0.0])))
    assert block <= 0.03 and slope <= 0.1


def test_passed_logits_replace_those_of_the_head():
    head = make_head(dimension=D)
    inputs, labels, _ = data = people(head, [1.0], count=2, rows=40)
    passed = sets_of(head, data)[0]
    plain = TrainingSet(
        blocks_of(head, Inputs(inputs[:40]), None, None),
        head.bias, labels[:40], np.full((40, 1), np.nan),
    )  # fmt: skip
    same = fit_device(plain, (1.0, 0.4)).full.left_out
    np.testing.assert_allclose(fit_device(passed, (0.0, 1.0, 0.4)).full.left_out, same, atol=1e-4)
    logits = logits_of(head, inputs)
    logits += np.random.default_rng(6).normal(size=logits.shape)
    noisy = sets_of(head, data, logits)[0]
    np.testing.assert_allclose(noisy.vendor_logits(), logits[:40], atol=1e-5)


def test_annotators_have_30_rows():
    head = make_head(dimension=D)
    inputs, labels, names = people(head, [1.0], count=1, rows=69)
    names[:30] = ["thirty"] * 30
    names[30:59] = ["twenty-nine"] * 29
    names[59:69] = [None] * 10
    (thirty,) = sets_of(head, (inputs, labels, names))
    np.testing.assert_array_equal(thirty.blocks[1].inputs.coordinates, inputs[:30])
    np.testing.assert_array_equal(thirty.labels, labels[:30])


def test_at_most_200_annotators_are_used():
    head = make_head(dimension=D)
    inputs, labels, names = people(head, [1.0], count=230, rows=31)
    sets = sets_of(head, (inputs, labels, names))
    assert len(sets) == 200
    assert len({training_set.blocks[1].inputs.coordinates[0, 0] for training_set in sets}) == 200


def public_rows(counts, documents=100_000):
    """Rows of people with so many rows each, by name, on distinct documents, and of nobody."""
    numbers = itertools.count()
    return [
        Row(name, "public", f"document {next(numbers) % documents}", "0", 0)
        for name, count in {**counts, None: 5}.items()
        for _ in range(count)
    ]


def test_annotators_are_drawn_before_their_texts_are_embedded(folder, monkeypatch):
    monkeypatch.setattr(learning, "MOST_ANNOTATORS", 25)
    monkeypatch.setattr(scales_module, "MOST_ANNOTATORS", 22)
    monkeypatch.setattr(learning, "MOST_ROWS", 35)
    monkeypatch.setattr(samples, "MOST_DOCUMENTS", 1500)
    bundle = write_word_vector_release(folder / "drawn.fala", make_head())
    counts = {f"few {n}": 9 for n in range(40)} | {f"some {n}": 12 for n in range(50)}
    counts |= {f"many {n}": 40 for n in range(30)}
    rows = public_rows(counts)
    data = annotated(bundle, bundle.head(), rows)
    used = Counter(data.rows[position].user for position in data.drawn)
    assert data.available == {10: 80, 30: 30}
    assert sum(name.startswith("many") for name in used) >= 22 and not any("few" in n for n in used)
    assert set(used.values()) == {12, 35}
    assert len(data.texts) == 1500 and None not in {row.user for row in data.rows}

    order = np.random.default_rng(0).permutation(len(rows))
    again = annotated(bundle, bundle.head(), [rows[position] for position in order])
    assert {again.rows[position].user for position in again.drawn} == set(used)
    more = rows + public_rows({f"more {n}": 9 for n in range(40)})
    assert {row.user for row in more} > {row.user for row in rows}
    further = annotated(bundle, bundle.head(), more)
    assert {further.rows[position].user for position in further.drawn} == set(used)


def test_the_drawn_annotators_of_a_prior_are_the_same_among_more(monkeypatch):
    """Those drawn for the scales alone do not change a prior."""
    monkeypatch.setattr(annotators_module, "MOST_ANNOTATORS", 24)
    head = make_head(dimension=D)
    inputs, labels, names = people(head, [1.0], count=60, rows=12)
    chosen = set(samples.drawn(sorted(set(names)), 24))
    others = set(samples.drawn(sorted(set(names)), 30))
    for some in (set(names), chosen, others):
        rows = np.flatnonzero([name in some for name in names])
        annotators = gather_annotators(
            inputs[rows], None, logits_of(head, inputs)[rows, 0], labels[rows, 0],
            [names[row] for row in rows],
        )  # fmt: skip
        assert set(annotators.names) == chosen
    assert annotators[23].extra_covariance.shape == (12, 12)
    assert [a.name for a in annotators[-2:]] == [*annotators.names[-2:]]


def test_held_out_priors_exclude_their_annotators():
    head = make_head(dimension=D)
    inputs, labels, names = people(head, [1.0], rows=20)
    annotators = gather_annotators(inputs, None, logits_of(head, inputs)[:, 0], labels[:, 0], names)
    choice = choose_prior(annotators, lambda _: None)
    assert len(choice.held_out) == FOLDS
    for fold, prior in enumerate(choice.held_out):
        excluded = {annotator.name for annotator in annotators[fold::FOLDS]}
        rest = [annotator for annotator in annotators if annotator.name not in excluded]
        start = isotropic(rest)
        fitted = estimate(rest, start)
        np.testing.assert_equal(vars(choice.candidate.prior(start, fitted)), vars(prior))
        assert not np.array_equal(prior.mean, choice.prior.mean)


def written(folder, name, head, *options, **kind):
    """A release with a head, the command on its rows, and the command's summary."""
    release = write_word_vector_release(folder / f"{name}.fala", head)
    rows = write_rows(folder / f"{name}.jsonl", verdicts(release, rows_each=32, people=22, **kind))
    command = ("prior", "--release", release.path, "--data", rows)
    return release.path, command, done(*command, *options)


def test_a_release_gets_scales_beside_its_prior(folder, monkeypatch):
    threads = []

    def choose(*arguments):
        pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
        threads.extend(pool["num_threads"] for pool in pools)
        return choose_prior(*arguments)

    monkeypatch.setattr(learning, "choose_prior", choose)
    path, _, summary = written(folder, "both", make_head(words=True))
    assert set(threads) == {1}  # more threads are slower on such small systems
    bundle = Bundle.open(path)
    assert bundle.prior() is not None
    assert bundle.manifest.details["scales"] == summary["scales"]
    *blocks, slope = summary["scales"]
    assert len(blocks) == 2 and set(blocks) <= set(GRID) and slope in SLOPES

    fewer = write_rows(folder / "fewer.jsonl", verdicts(bundle))
    assert done("prior", "--release", path, "--data", fewer)["scales"] is None
    assert "scales" not in Bundle.open(path).manifest.details  # they belong to the previous prior


def test_scales_alone_leave_the_prior_unchanged(folder):
    path, command, summary = written(folder, "first", make_head(), "--scales-only")
    bundle = Bundle.open(path)
    assert bundle.manifest.details["scales"] == summary["scales"]
    assert "prior" not in summary and bundle.prior() is None
    works(*command)
    prior = Bundle.open(path).prior()
    shown = works(*command, "--scales-only").stdout
    assert "scales of a device's fit: " in shown and "a user's bias" not in shown
    assert "chosen on 22 of 22 annotators" in shown
    assert bundle.manifest.details["scales_from"] == {"annotators": 22, "of": 22}
    np.testing.assert_equal(vars(Bundle.open(path).prior()), vars(prior))


def test_a_matcher_of_two_blocks_gets_scales_and_no_prior(folder):
    dimension = make_head().dimension
    weight = np.random.default_rng(4).normal(size=(1, 2 * dimension)).astype(np.float32)
    head = Head("matching", ("0", "1"), weight, np.zeros(1, np.float32), dimension=dimension)
    _, command, summary = written(folder, "matcher", head, "--scales-only", matching=True)
    assert len(summary["scales"]) == 3
    message = failed(*command)
    assert "weighs candidates" in message and "--scales-only" in message


@pytest.mark.parametrize("labels", [("0", "1"), ("a", "b", "c")])
def test_left_out_losses_are_those_of_the_devices_fit(labels):
    rng = np.random.default_rng(3)
    head = make_head(labels=labels, dimension=D, words=True)
    inputs = rng.normal(size=(40, D)).astype(np.float32)
    prior = None
    if len(labels) == 2:
        numbers = rng.normal(size=(3, D + 1)).astype(np.float32)
        prior = PopulationPrior(numbers[0], numbers[1] ** 2 + 0.1, numbers[2:])
    words = head.words([f"word {at % 7} of {at}" for at in range(40)])
    shares = head.label_shares(rng.choice(labels, size=40).tolist())
    training = TrainingSet(
        blocks_of(head, Inputs(inputs), words, prior),
        head.bias,
        shares,
        np.full(shares.shape, np.nan),
    )
    left_out, near = LeftOut.of(training), None
    for scales in ((1.0, 3.0, 1.0), (0.1, 0.0, 0.4), (10.0, 0.3, 0.0)):
        expected = cross_entropy(shares, fit_device(training, scales).full.left_out).sum()
        lost, near = left_out.loss(scales, near)
        assert lost == pytest.approx(expected, rel=1e-5)
