import itertools
import tracemalloc
from collections import Counter

import numpy as np
import pytest
from scipy.special import expit
from threadpoolctl import threadpool_info

from bundles import make_head, write_word_vector_release
from export_command import done, failed, works
from fala import Bundle
from fala.model.heads import Head
from fala.model.links import LABELS, TAGS, Rating
from fala.model.scales import Scales
from fala.solver.fit import BIAS_SCALE, DENSE_SCALE, SLOPE_SCALE
from fala.solver.fit import fit as fit_device
from fala.solver.training import TrainingSet, blocks_of
from fala.text.ngrams import BUCKETS
from fala_export.embedding import Embedder
from fala_export.fit import annotators as learning
from fala_export.fit import scales as scales_module
from fala_export.fit.annotators import annotated, choose_table
from fala_export.fit.devices import Devices, Simulated
from fala_export.fit.scales import MULTIPLES, Annotators, choose_scales, trials
from fala_export.rows import door
from fala_export.rows.table import Rows
from fala_export.rows.user_rows import Row
from public_data import write_rows
from public_people import verdicts

pytestmark = pytest.mark.slow


D = 6


def matcher(rng):
    """A head of two blocks of D inputs."""
    weight = rng.normal(size=(1, 2 * D)).astype(np.float32)
    return Head("matching", ("0", "1"), weight, np.zeros(1, np.float32), dimension=D)


def people(head, variances, count=16, rows=150, seed=1, slope=0.0, bias=0.0):
    """Rows of people whose weights vary around the head's, as arrays.

    A block's variance is of the logits, as its scale is; those of slope and bias are standard
    deviations.
    """
    rng = np.random.default_rng(seed)
    names = np.repeat([f"person {number}" for number in range(count)], rows)
    inputs = rng.normal(size=(count * rows, head.weight.shape[1])).astype(np.float32)
    deviations = np.concatenate([np.full(head.dimension, (v / D) ** 0.5) for v in variances])
    slopes = 1 + slope * rng.normal(size=(count, 1))
    weights = slopes * head.weight + deviations * rng.normal(size=(count, len(deviations)))
    logits = (inputs * weights.repeat(rows, axis=0)).sum(axis=1) + head.bias
    logits += bias * rng.normal(size=count).repeat(rows)
    labels = (rng.random(len(logits)) < expit(logits)).astype(float)
    return inputs, labels[:, None], names.tolist()


def logits_of(head, inputs):
    return inputs.astype(float) @ head.weight.T.astype(float) + head.bias


def annotators_of(head, data, logits=None):
    """Annotators, each with every third row held out."""
    inputs, shares, names = data
    logits = logits_of(head, inputs) if logits is None else logits
    held_out = np.arange(len(names)) % 3 == 0
    return Annotators.of(head, inputs, None, logits, shares, names, held_out)


def sets_of(head, data, logits=None, labels=50):
    return annotators_of(head, data, logits).simulated(labels)


def chosen_for(head, data, labels=50):
    return choose_scales(sets_of(head, data, labels=labels), labels)


def test_the_planted_spread_is_chosen():
    head = make_head(dimension=D)
    ticks = []
    sets = sets_of(head, people(head, [10.0]))
    scales = choose_scales(sets, 50, ticks.append)
    assert DENSE_SCALE * 10 <= scales.blocks[0] <= DENSE_SCALE * 30
    assert (scales.labels, scales.mixing) == (50, 1.0)
    assert sum(ticks) == 16 * trials(1)


def test_every_block_has_a_scale_of_its_own():
    head = matcher(np.random.default_rng(2))
    first, second = chosen_for(head, people(head, [0.0, 10.0], count=60)).blocks
    assert first <= 0.15 and second >= 1.5


def test_people_who_differ_in_one_thing_have_only_its_scale():
    head = make_head(dimension=D)
    slopes = chosen_for(head, people(head, [0.0], count=30, slope=2.0))
    assert slopes.slope > SLOPE_SCALE and slopes.bias <= BIAS_SCALE
    biases = chosen_for(head, people(head, [0.0], count=30, bias=3.0), labels=10)
    assert biases.bias > BIAS_SCALE and biases.slope <= SLOPE_SCALE
    assert max(slopes.blocks + biases.blocks) <= DENSE_SCALE


def test_a_scale_changes_only_if_people_gain_by_more_than_a_standard_error():
    """One of two people agrees with the vendor, so the other's gain alone proves nothing."""
    head = make_head(dimension=D)
    agrees, differs = (people(head, [spread], count=1) for spread in (0.0, 40.0))
    inputs, labels = (np.vstack(parts) for parts in list(zip(agrees, differs, strict=True))[:2])
    sets = sets_of(head, (inputs, labels, ["agrees"] * 150 + ["differs"] * 150))
    scales = choose_scales(sets, 50)
    assert scales.blocks == (DENSE_SCALE,)

    def lost(block):
        numbers = Scales((0.0, block), scales.slope, scales.bias)
        return Devices.of(sets).losses(numbers, (1.0,))[0].mean()

    assert min(lost(3 * DENSE_SCALE), lost(10 * DENSE_SCALE)) < lost(DENSE_SCALE)


def test_passed_logits_replace_those_of_the_head():
    head = make_head(dimension=D)
    inputs, _, _ = data = people(head, [1.0], count=2, rows=60)
    ((simulated,), _) = sets_of(head, data, labels=40)
    passed = simulated.training
    (rows,) = (block.inputs for block in passed.blocks[1:])
    plain = TrainingSet(
        blocks_of(head, rows, None), head.bias, passed.labels, np.full((40, 1), np.nan)
    )
    same = fit_device(plain, Scales((1.0,), 0.4, 0.6)).full.left_out
    ours = fit_device(passed, Scales((0.0, 1.0), 0.4, 0.6)).full.left_out
    np.testing.assert_allclose(ours, same, atol=1e-4)
    logits = logits_of(head, inputs)
    logits += np.random.default_rng(6).normal(size=logits.shape)
    ((noisy,), _) = sets_of(head, data, logits, labels=40)
    every = np.vstack([each.vendor_logits() for each in noisy])
    np.testing.assert_allclose(np.sort(every, axis=0), np.sort(logits[:60], axis=0), atol=1e-5)


def test_annotators_have_30_rows_and_are_scored_on_others_than_they_learn():
    head = make_head(dimension=D)
    inputs, labels, names = people(head, [1.0], count=1, rows=69)
    names[:30] = ["thirty"] * 30
    names[30:59] = ["twenty-nine"] * 29
    names[59:69] = [None] * 10
    (devices,) = sets_of(head, (inputs, labels, names), labels=10)
    assert [len(each.training) for each in devices] == [10, 10]
    parts = [*(each.training for each in devices), devices[0].scored]
    held_out = np.arange(30) % 3 == 0
    for rows, of in ((np.flatnonzero(~held_out), parts[:2]), (np.flatnonzero(held_out), parts[2:])):
        drawn = np.vstack([part.blocks[1].inputs for part in of])
        order = np.argsort(inputs[rows, 0]), np.argsort(drawn[:, 0])
        np.testing.assert_array_equal(drawn[order[1]], inputs[rows][order[0]])
        shares = np.concatenate([part.labels for part in of])
        np.testing.assert_array_equal(shares[order[1]], labels[rows][order[0]])


@pytest.mark.parametrize("turned", [False, True])
def test_neither_the_order_of_rows_nor_of_labels_matters(turned):
    head = make_head(dimension=D)
    inputs, labels, names = people(head, [1.0], count=5, rows=90)
    held_out = np.arange(len(names)) % 3 == 0
    order = np.random.default_rng(3).permutation(len(names))
    shuffled = inputs[order], labels[order], [names[position] for position in order]
    other_head = head
    if turned:  # the other label comes first
        other_head = Head(head.task, head.labels[::-1], -head.weight, -head.bias)
        shuffled = shuffled[0], 1 - shuffled[1], shuffled[2]

    def sets(head, data, held_out):
        inputs, shares, names = data
        rows = (head, inputs, None, logits_of(head, inputs), shares, names, held_out)
        return Annotators.of(*rows).simulated(20)

    one = sets(head, (inputs, labels, names), held_out)
    for ours, theirs in zip(one, sets(other_head, shuffled, held_out[order]), strict=True):
        assert len(ours) == 3
        for device, other in zip(ours, theirs, strict=True):
            for part, same in zip(device, other, strict=True):
                np.testing.assert_array_equal(part.labels, abs(turned - same.labels))
                np.testing.assert_array_equal(part.blocks[1].inputs, same.blocks[1].inputs)


def public_rows(counts, documents=100_000):
    """Rows of people with so many rows each, by name, on distinct documents, and of nobody."""
    numbers = itertools.count()
    return [
        Row(name, "public", f"document {next(numbers) % documents}", "0", 0)
        for name, count in {**counts, None: 5}.items()
        for _ in range(count)
    ]


def test_annotators_are_drawn_before_their_texts_are_embedded(folder, monkeypatch):
    monkeypatch.setattr(scales_module, "MOST_ANNOTATORS", 22)
    monkeypatch.setattr(learning, "MOST_ROWS", 35)
    monkeypatch.setattr(door, "MOST_DOCUMENTS", 1500)
    bundle = write_word_vector_release(folder / "drawn.fala", make_head())
    counts = {f"few {n}": 9 for n in range(40)} | {f"some {n}": 12 for n in range(50)}
    counts |= {f"many {n}": 40 for n in range(30)}
    rows = public_rows(counts)

    def drawn(rows):
        data, positions, count = annotated(bundle, bundle.head(), Rows.of(rows))
        assert count == 30
        return data, Counter(row.user for row in data.take(positions))

    data, used = drawn(rows)
    assert len(used) == 22 and all(name.startswith("many") for name in used)
    assert set(used.values()) == {35}
    assert 1500 <= len(data.texts()) <= 1500 + 22 * 35 and None not in data.user_names
    order = np.random.default_rng(0).permutation(len(rows))
    assert set(drawn([rows[position] for position in order])[1]) == set(used)
    more = rows + public_rows({f"more {n}": 9 for n in range(40)})
    assert set(drawn(more)[1]) == set(used)


def test_the_table_ends_where_too_few_annotators_have_as_many_labels():
    head = make_head(dimension=D)
    inputs, labels, names = people(head, [1.0], count=20, rows=36)
    table, origin = choose_table(annotators_of(head, (inputs, labels, names)), 20)
    assert [(row["labels"], len(row["blocks"])) for row in table] == [(10, 1), (20, 1)]
    assert origin == {"annotators": 20, "of": 20}
    few = slice(18 * 36)
    fewer = annotators_of(head, (inputs[few], labels[few], names[few]))
    assert choose_table(fewer, 18) == (None, None)


def test_a_release_gets_scales(folder, monkeypatch):
    threads = []

    def choose(*arguments):
        pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
        threads.extend(pool["num_threads"] for pool in pools)
        return choose_scales(*arguments)

    monkeypatch.setattr(scales_module, "choose_scales", choose)
    release = write_word_vector_release(folder / "both.fala", make_head(words=True))
    path, data = release.path, folder / "both.jsonl"
    write_rows(data, verdicts(release, rows_each=45, people=22))
    command = ("scales", "--release", path, "--data", data)
    summary = done(*command)
    assert set(threads) == {1}  # more threads are slower on such small systems
    bundle = Bundle.open(path)
    assert bundle.manifest.details["scales"] == summary["scales"]
    assert bundle.manifest.details["scales_from"] == {"annotators": 22, "of": 22}
    assert [row["labels"] for row in summary["scales"]] == [10, 20]  # no 20 people have 50 rows
    for row in bundle.scales:
        dense, words = row.blocks
        steps = 2 * dense, words, 2 * row.slope, row.bias / 0.7
        assert all(np.isclose(step, MULTIPLES).any() for step in steps)
    first = path.read_bytes()
    shown = works(*command).stdout
    assert (
        "scales (prior variances) of a device's fit, by number of labels:\n    from 10   weights "
        in shown
    )
    assert "chosen on 22 of 22 annotators" in shown
    assert path.read_bytes() == first


def test_too_few_annotators_are_refused_before_their_texts_are_embedded(folder, monkeypatch):
    monkeypatch.setattr(Embedder, "embed", lambda *_: pytest.fail("the texts were embedded"))
    release = write_word_vector_release(folder / "few.fala", make_head())
    rows = write_rows(folder / "few.jsonl", verdicts(release, people=19, rows_each=32))
    before = release.path.read_bytes()
    error = failed("scales", "--release", release.path, "--data", rows)
    assert "trained on" in error and "Leave the scales out" in error
    assert "19 of 19 public annotators have at least 30 rows" in error
    assert release.path.read_bytes() == before


RATING = Rating(1.0, 5.0, 1.0)


@pytest.mark.parametrize(
    ("labels", "link"),
    [
        (("0", "1"), LABELS), (("a", "b", "c"), LABELS), (("a", "b"), TAGS),
        (("rating",), RATING),
    ],
)  # fmt: skip
def test_losses_of_scored_examples_are_those_of_the_devices_fit(labels, link):
    rng = np.random.default_rng(3)
    head = make_head(labels=labels, dimension=D, words=True, link=link)
    sets = []
    for person in range(5):  # the second has two devices
        inputs = rng.normal(size=(60, D)).astype(np.float32)
        words = head.ngrams([f"word {at % 7} of {at} {person}" for at in range(60)])
        given = {
            "labels": lambda: rng.choice(labels, size=60).tolist(),
            "tags": lambda: [{tag for tag in labels if rng.random() < 0.5} for _ in range(60)],
            "rating": lambda: rng.uniform(1, 5, size=60).tolist(),
        }[link.kind]()
        shares = head.label_shares(given)
        blocks = blocks_of(head, inputs, words)
        every = TrainingSet(blocks, head.bias, shares, np.full(shares.shape, np.nan), link)
        scored = np.arange(40, 60 - person)
        sets.append(Simulated(every.take(np.arange(40)), every.take(scored)))
    tracemalloc.start()
    devices, near = Devices.of([sets[:1], sets[1:3], sets[3:4], sets[4:]]), None
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held < 8 * BUCKETS  # One number for each n-gram and device would be five times as much.
    for numbers in ((1.0, 3.0, 1.0, 1.0), (0.1, 0.0, 0.4, 0.1), (10.0, 0.3, 0.0, 0.0)):
        scales = Scales.of_numbers(numbers)
        losses, near = devices.losses(scales, (0.0, 1.0), near)
        fits = [fit_device(training, scales) for training, _ in sets]
        for column, model in enumerate(("calibrated", "full")):
            each = [
                link.losses(one.labels, one.logits(fitted.weights, fitted.bias)).mean()
                for (_, one), fitted in zip(
                    sets, (getattr(fit, model) for fit in fits), strict=True
                )
            ]
            expected = [each[0], (each[1] + each[2]) / 2, each[3], each[4]]
            np.testing.assert_allclose(losses[:, column], expected, rtol=1e-4)
