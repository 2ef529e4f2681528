"""Made-up training sets, and what a Gaussian over omega means, written down plainly."""

from dataclasses import replace

import numpy as np
import scipy.optimize

from bundles import make_head
from fala.model.links import LABELS, TAGS
from fala.solver.fit import State, fit
from fala.solver.gaussian import BIAS_DEVIATION, LOGIT_WEIGHT, SLOPE_DEVIATION
from fala.solver.training import Block, TrainingSet
from fala.text.sparse_rows import SparseRows

D = 5


def head_of(classes=1, d=D):
    """A head of random weights with one logit, or three."""
    return make_head(labels=("0", "1") if classes == 1 else ("a", "b", "c"), dimension=d)


def make_training(n=40, classes=1, targets="none", seed=0, d=D, blocks=1, words=0, tags=False):
    """Labels of a planted truth, or tags; a third has none of them where there are targets."""
    random = np.random.default_rng(seed)
    made, z = [], 0.0
    for number in range(blocks):
        inputs = random.normal(size=(n, d)) + 0.4
        made.append(Block(inputs, make_head_weight(classes, d, number), unseen=float(number)))
        z = z + dense(made[-1]) @ random.normal(size=(d, classes))
    if words:
        made.append(Block(make_words(n, words), 0.1 * make_head_weight(classes, words, 1)))
        z = z + dense(made[-1]) @ random.normal(size=(words, classes))
    if classes == 1 or tags:
        labels = (z + random.logistic(size=z.shape) > 0).astype(float)
    else:
        labels = np.eye(classes)[(z + random.gumbel(size=z.shape)).argmax(axis=1)]
    old = z + random.normal(size=z.shape)
    known = np.full(z.shape, np.nan)
    if targets != "none":
        labels[: n if targets == "only" else n // 3] = np.nan
        known = old + 0.5
    return TrainingSet(
        tuple(made), head_of(classes).bias, labels, known, TAGS if tags else LABELS
    )  # fmt: skip


def make_words(n, width, seed=1):
    """Sparse rows: one number in three is not 0."""
    random = np.random.default_rng(seed)
    there = random.random((n, width)) < 1 / 3
    counts = there.sum(axis=1)
    return SparseRows(
        np.append(0, np.cumsum(counts)), np.nonzero(there)[1].astype(np.int32),
        random.uniform(0.5, 1.5, size=there.sum()).astype(np.float32), width,
    )  # fmt: skip


def make_head_weight(classes, d, number):
    """The vendor's weights of a block; the first block's are ``head_of``'s."""
    weight = head_of(classes, d).weight
    return weight if number == 0 else np.ascontiguousarray(weight[:, ::-1] / (1 + number))


def dense(block):
    """A block's features."""
    inputs = block.inputs
    if isinstance(inputs, SparseRows):
        return np.stack([one_row(inputs, number) for number in range(len(inputs))])
    return inputs


def one_row(rows, number):
    """A sparse row, written out."""
    part = slice(rows.starts[number], rows.starts[number + 1])
    row = np.zeros(rows.width)
    row[rows.buckets[part]] = rows.values[part]
    return row


def gaussian(training, scales):
    """Covariance of (omega - w, b - the vendor's b, a) for any logit; their mean is 0."""
    widths = [block.weight.shape[1] for block in training.blocks]
    whole = sum(widths)
    variances, turn, start = np.zeros(whole + 2), np.eye(whole + 2), 0
    for block, scale, width in zip(training.blocks, scales.blocks, widths, strict=True):
        own = slice(start, start + width)
        # b = free bias - omega . mean input, both drawn apart from each other; a row that is as
        # far from the mean as rows are has a logit of variance 1.
        x = dense(block)
        centre = x.mean(axis=0)
        turn[whole, own] = -centre
        length = ((x - centre) ** 2).sum(axis=1).mean() + block.unseen
        variances[own] = scale / length
        start += width
    variances[whole] = scales.bias * BIAS_DEVIATION**2
    variances *= training.link.spread**2
    variances[whole + 1] = scales.slope * SLOPE_DEVIATION**2
    return turn @ np.diag(variances) @ turn.T


def brute_force(training, scales):
    """Weights of all blocks side by side, bias, and logits, by a general minimizer."""
    x = np.hstack([dense(block) for block in training.blocks])
    vendor = np.hstack([block.weight for block in training.blocks]).astype(float)
    d = x.shape[1]
    precision = np.linalg.inv(gaussian(training, scales))
    labelled = ~np.isnan(training.labels).any(axis=1)
    by_target = ~labelled & ~np.isnan(training.targets).any(axis=1)
    weight = (LOGIT_WEIGHT if labelled.any() else 1.0) / training.link.spread**2
    shape = len(vendor), len(precision)
    plain = x @ vendor.T + training.bias
    level = plain[labelled | by_target].mean(axis=0)

    def logits(numbers):
        moved = x @ numbers[:, :d].T + numbers[:, d]
        return plain + moved + numbers[:, d + 1] * (plain - level)

    def objective(flat):
        numbers = flat.reshape(shape)
        z = logits(numbers)
        value = training.link.losses(training.labels[labelled], z[labelled]).sum()
        value += weight * ((z - training.targets)[by_target] ** 2).sum()
        return value + np.einsum("ci,ij,cj->", numbers, precision, numbers) / 2

    start = np.zeros(shape).ravel()
    found = scipy.optimize.minimize(objective, start, method="BFGS", options={"gtol": 1e-6})
    numbers = found.x.reshape(shape)
    slope = numbers[:, d + 1]
    weights = vendor * (1 + slope[:, None]) + numbers[:, :d]
    bias = training.bias + numbers[:, d] + slope * (training.bias - level)
    return weights, bias, logits(numbers)


def answers(training, fitted):
    """The logits of a full fit, or of a state's model, from its weights alone."""
    model = fitted.model(1.0) if isinstance(fitted, State) else fitted.full
    parts = zip(training.blocks, model.weights, strict=True)
    return sum(dense(block) @ weight.T for block, weight in parts) + model.bias


def left_out_by_refits(training, scales=None, chosen=None):
    """The logits of examples by fits without each: of the full model, and of the calibrated one."""
    refits = []
    for index in range(len(training)) if chosen is None else chosen:
        labels, targets = training.labels.copy(), training.targets.copy()
        labels[index] = targets[index] = np.nan
        # The weights of the other examples do not change.
        without = fit(replace(training, labels=labels, targets=targets), scales)
        refits.append((without.full.left_out[index], without.calibrated.left_out[index]))
    return np.swapaxes(refits, 0, 1)


def part(training, chosen):
    """Some examples of a training set."""
    return training.take(np.arange(len(training))[chosen])
