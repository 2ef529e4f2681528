"""The blend of views: its optimum by brute force, its leave-one-out by refits, its threshold."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.optimize
from fala.solver.blend import Inputs, Rows, View, fit_blend

from bundles import make_head
from fala.errors import DataError
from fala.model.heads import Head, PersonalModel
from fala.model.losses import cross_entropy, probabilities
from fala.model.prior import PopulationPrior
from fala.replacement.fitting import f1_threshold
from fala.selection.next_texts import move
from fala.solver import blend
from fala.solver.personal import LOGIT_WEIGHT

D = 5
THREE = ("a", "b", "c")


def make_rows(n=40, classes=1, view=True, basis=False, targets="none", seed=0, d=D):
    """Rows with labels of a planted truth; a third has none of them where there are targets."""
    random = np.random.default_rng(seed)
    coordinates = random.normal(size=(n, 3 if basis else d)) + 0.4
    inputs = Inputs(coordinates, random.normal(size=(3, d)) if basis else None)
    x = coordinates if inputs.basis is None else coordinates @ inputs.basis
    z = x @ random.normal(size=(d, classes))
    if classes == 1:
        labels = (z + random.logistic(size=z.shape) > 0).astype(float)
    else:
        labels = np.eye(classes)[(z + random.gumbel(size=z.shape)).argmax(axis=1)]
    old = z + random.normal(size=z.shape)
    known = np.full(z.shape, np.nan)
    if targets != "none":
        labels[: n if targets == "only" else n // 3] = np.nan
        known = old + 0.5
    return Rows(inputs, labels, old if view else None, known)


def make_prior(seed=4, d=D):
    random = np.random.default_rng(seed)
    return PopulationPrior(
        0.3 * random.normal(size=d + 1).astype(np.float32),
        random.uniform(0.2, 1, size=d + 1).astype(np.float32),
        random.normal(size=(2, d + 1)).astype(np.float32),
    )


def head_of(classes=1):
    return make_head(labels=("0", "1") if classes == 1 else THREE, dimension=D)


def gaussian(head, rows, index, prior):
    """Mean and covariance of (omega - w, b - the vendor's b, a), written as they are meant."""
    x = dense(rows)
    if prior is None:
        spread = blend.SPREAD * np.mean(head.weight[index].astype(float) ** 2)
        # b = free bias - omega . mean input, both drawn apart from each other.
        turn = np.eye(D + 1)
        turn[D, :D] = -x.mean(axis=0)
        mean, draws = np.zeros(D + 1), np.diag([spread] * D + [blend.BIAS_DEVIATION**2])
        covariance = turn @ draws @ turn.T
    else:
        mean = prior.mean.astype(float)
        covariance = np.diag(prior.variance) + prior.factors.T.astype(float) @ prior.factors
    if rows.view is None:
        return mean, covariance
    whole = np.zeros((D + 2, D + 2))
    whole[:-1, :-1], whole[-1, -1] = covariance, blend.VIEW_DEVIATION**2
    return np.append(mean, blend.VIEW_WEIGHT), whole


def dense(rows):
    inputs = rows.inputs
    return inputs.coordinates if inputs.basis is None else inputs.coordinates @ inputs.basis


def brute_force(head, rows, prior, scale):
    """(omega - w, b - the vendor's b, a) by a general minimizer, shape (C, p)."""
    x, classes = dense(rows), len(head.weight)
    priors = [gaussian(head, rows, index, prior) for index in range(classes)]
    precisions = [np.linalg.inv(covariance) for _, covariance in priors]
    labelled = ~np.isnan(rows.labels).any(axis=1)
    by_target = ~labelled & ~np.isnan(rows.targets).any(axis=1)
    weight = LOGIT_WEIGHT if labelled.any() else 1.0
    shape = classes, len(priors[0][0])

    def logits(numbers):
        z = x @ (head.weight + numbers[:, :D]).T + head.bias + numbers[:, D]
        return z if rows.view is None else z + rows.view * numbers[:, D + 1]

    def objective(flat):
        numbers = flat.reshape(shape)
        z = logits(numbers)
        value = cross_entropy(rows.labels[labelled], z[labelled]).sum()
        value += weight * ((z - rows.targets)[by_target] ** 2).sum()
        for row, (mean, _), precision in zip(numbers, priors, precisions, strict=True):
            value += (row - mean) @ precision @ (row - mean) / (2 * scale)
        return value

    start = np.stack([mean for mean, _ in priors]).ravel()
    found = scipy.optimize.minimize(objective, start, method="BFGS", options={"gtol": 1e-6})
    numbers = found.x.reshape(shape)
    return numbers, logits(numbers)


def answers(head, rows, fitted):
    """The blend's logits on its own rows."""
    z = fitted.model.logits(dense(rows))
    return z if rows.view is None else z + rows.view * fitted.weight


CASES = [
    {}, {"view": False}, {"basis": True}, {"basis": True, "view": False}, {"targets": "some"},
    {"targets": "only"}, {"n": 4}, {"classes": 3}, {"classes": 3, "view": False, "basis": True},
    {"classes": 3, "targets": "some"}, {"basis": True, "targets": "some", "n": 12},
    {"prior": True}, {"prior": True, "view": False, "targets": "some"},
    {"prior": True, "basis": True, "targets": "only"}, {"prior": True, "n": 4},
]  # fmt: skip


@pytest.mark.parametrize("scale", [0.3, 3.0])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_optimum_is_the_brute_force_one(monkeypatch, case, scale):
    rows = make_rows(**{name: value for name, value in case.items() if name != "prior"})
    head = head_of(case.get("classes", 1))
    prior = make_prior() if "prior" in case else None
    monkeypatch.setattr(blend, "SCALES", (scale,))
    fitted = fit_blend(head, rows, prior)
    numbers, z = brute_force(head, rows, prior, scale)
    used = len(rows.labels)
    assert fitted.lambda_ == pytest.approx(0.5 / (used * scale))
    np.testing.assert_allclose(answers(head, rows, fitted), z, atol=2e-4)
    folded = fitted.model.theta * head.weight
    np.testing.assert_allclose(folded, head.weight + numbers[:, :D], atol=2e-4)
    np.testing.assert_allclose(fitted.model.bias, head.bias + numbers[:, D], atol=2e-4)
    if rows.view is None:
        assert fitted.weight is None
    else:
        np.testing.assert_allclose(fitted.weight, numbers[:, D + 1], atol=2e-4)
    np.testing.assert_allclose(fitted.vendor, dense(rows) @ head.weight.T + head.bias, atol=1e-5)


@pytest.mark.parametrize("with_prior", [False, True], ids=["isotropic", "population"])
@pytest.mark.parametrize("view", [False, True])
@pytest.mark.parametrize("targets", ["none", "some"])
def test_a_basis_changes_the_arithmetic_only(with_prior, view, targets):
    head, rows = head_of(), make_rows(basis=True, view=view, targets=targets)
    prior = make_prior() if with_prior else None
    plain = replace(rows, inputs=Inputs(dense(rows)))
    few, many = fit_blend(head, rows, prior), fit_blend(head, plain, prior)
    np.testing.assert_allclose(few.model.theta, many.model.theta, atol=1e-4)
    np.testing.assert_allclose(few.model.bias, many.model.bias, atol=1e-4)
    np.testing.assert_allclose(few.left_out, many.left_out, atol=1e-4)
    np.testing.assert_allclose(few.vendor, many.vendor, atol=1e-5)
    assert few.lambda_ == many.lambda_
    assert few.columns < many.columns
    if view:
        np.testing.assert_allclose(few.weight, many.weight, atol=1e-5)


@pytest.mark.parametrize("case", [{}, {"view": False}, {"basis": True}, {"classes": 3}], ids=str)
def test_leave_one_out_is_near_a_refit(monkeypatch, case):
    monkeypatch.setattr(blend, "SCALES", (1.0,))
    n = 30 if "classes" in case else 60
    case = {"n": n, **case}
    head, rows = head_of(case.get("classes", 1)), make_rows(**case)
    fitted = fit_blend(head, rows)
    refits = []
    for index in range(n):
        labels = rows.labels.copy()
        labels[index] = np.nan
        # An example without a label or target gets the logit of a fit that it had no part in.
        refits.append(fit_blend(head, replace(rows, labels=labels)).left_out[index])
    ours = np.abs(fitted.left_out - refits)
    nothing = np.abs(answers(head, rows, fitted) - refits)
    assert np.median(ours) < 0.02
    assert ours.mean() < 0.2 * nothing.mean()


def test_the_penalty_is_the_one_that_leaves_out_best():
    head, rows = head_of(), make_rows(n=30, seed=2)
    losses = {}
    for scale in blend.SCALES:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(blend, "SCALES", (scale,))
            fitted = fit_blend(head, rows)
        losses[fitted.lambda_] = cross_entropy(rows.labels, fitted.left_out).mean()
    assert fit_blend(head, rows).lambda_ == pytest.approx(min(losses, key=losses.get))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("classes", [1, 3])
@pytest.mark.parametrize("view", [False, True])
@pytest.mark.parametrize("n", [0, 6])
def test_without_evidence_the_prior_answers(classes, view, n):
    head = head_of(classes)
    rows = make_rows(n=6, classes=classes, view=view)
    inputs = Inputs(rows.inputs.coordinates[:n])
    nothing = np.full((n, classes), np.nan)
    rows = Rows(inputs, nothing, rows.view[:n] if view else None, nothing)
    fitted = fit_blend(head, rows)
    assert fitted.model.is_vendor
    assert (fitted.lambda_, fitted.steps, fitted.columns) == (None, 0, 0)
    assert fitted.left_out.shape == fitted.vendor.shape == (n, classes)
    if view:
        np.testing.assert_allclose(fitted.weight, blend.VIEW_WEIGHT)
        np.testing.assert_allclose(
            fitted.left_out, fitted.vendor + blend.VIEW_WEIGHT * rows.view, atol=1e-6
        )
    else:
        assert fitted.weight is None
        np.testing.assert_allclose(fitted.left_out, fitted.vendor)
    if classes == 1:
        prior = make_prior()
        fitted = fit_blend(head, rows, prior)
        np.testing.assert_allclose(
            fitted.model.theta * head.weight, head.weight + prior.mean[:-1], atol=1e-6
        )
        np.testing.assert_allclose(fitted.model.bias, head.bias + prior.mean[-1:])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("n", [1, 3, 30])
@pytest.mark.parametrize("classes", [1, 3])
def test_labels_of_one_class_stay_finite(n, classes):
    rows = make_rows(n=n, classes=classes)
    shares = np.ones((n, 1)) if classes == 1 else np.eye(3)[np.ones(n, int)]
    head = head_of(classes)
    fitted = fit_blend(head, replace(rows, labels=shares))
    assert np.isfinite(fitted.left_out).all()
    assert np.abs(fitted.model.bias - head.bias).max() < 10
    seen = probabilities(answers(head, rows, fitted))
    seen = seen[:, 0] if classes == 1 else seen[:, 1]
    plain = probabilities(fitted.vendor + blend.VIEW_WEIGHT * rows.view)
    plain = plain[:, 0] if classes == 1 else plain[:, 1]
    assert seen.mean() > plain.mean()


@pytest.mark.filterwarnings("error")
def test_more_evidence_moves_more():
    head, rows = head_of(), make_rows(n=200)
    moved = []
    for n in (2, 20, 200):
        part = Rows(
            Inputs(rows.inputs.coordinates[:n]), rows.labels[:n], rows.view[:n], rows.targets[:n]
        )
        fitted = fit_blend(head, part)
        z = fitted.model.logits(rows.inputs.coordinates) + rows.view * fitted.weight
        moved.append(cross_entropy(rows.labels, z.astype(float)).mean())
    assert moved[0] > moved[1] > moved[2]


@pytest.mark.parametrize("prior", [None, make_prior()], ids=["isotropic", "population"])
def test_what_is_fitted_is_what_answers_where_the_vendor_has_zero_weights(prior):
    random = np.random.default_rng(7)
    for zeros in ([0], [1, 3], list(range(D))):
        weight = random.normal(size=(1, D)).astype(np.float32)
        weight[0, zeros] = 0.0
        head = Head("classification", ("0", "1"), weight, np.array([0.2], np.float32))
        rows = make_rows(seed=8)
        # The labels hang on the very coordinates that the vendor does not use.
        labels = (rows.inputs.coordinates[:, zeros].sum(axis=1, keepdims=True) > 1).astype(float)
        labels[30:] = np.nan
        fitted = fit_blend(head, replace(rows, labels=labels), prior)
        # What the fit thinks of examples that it was not fitted to is what the device will say.
        np.testing.assert_allclose(
            answers(head, rows, fitted)[30:], fitted.left_out[30:], atol=1e-5
        )


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("where", ["coordinates", "view", "targets"])
def test_a_number_that_is_not_finite_is_refused(where, value):
    rows = make_rows(targets="some")
    if where == "coordinates":
        rows.inputs.coordinates[3, 1] = value
    elif where == "view":
        rows.view[3] = value
    elif np.isnan(value):
        return  # that is how a target says that there is none
    else:
        rows.targets[3] = value
    with pytest.raises(DataError):
        fit_blend(head_of(), rows)


def test_a_view_adds_its_weighed_logits():
    head = make_head(dimension=D, labels=THREE)
    random = np.random.default_rng(0)
    theta, bias = random.normal(size=head.weight.shape), random.normal(size=3)
    model, weight = PersonalModel(head, theta, bias), np.array([0.5, -1, 0], np.float32)
    inputs = random.normal(size=(6, D)).astype(np.float32)
    added = View(model, weight).logits(inputs)
    np.testing.assert_allclose(added, weight * model.logits(inputs), rtol=1e-6)
    assert added.dtype == np.float32


# The threshold


def expected_f1(p, decided):
    """Twice the expected true positives over what is expected to be there and what is decided."""
    return 2 * p[decided].sum() / (decided.sum() + p.sum()) if decided.any() else 0.0


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("n", [1, 2, 7, 60])
@pytest.mark.parametrize("spread", [0.01, 1.0, 5.0, 30.0])
@pytest.mark.parametrize("centre", [-20.0, -3.0, 0.0, 3.0, 20.0])
def test_no_threshold_is_expected_to_do_better(n, spread, centre):
    z = centre + spread * np.random.default_rng(n).normal(size=(n, 1))
    p = probabilities(z)[:, 0]
    edges = np.append(np.sort(z[:, 0]), -np.inf)
    best = max(expected_f1(p, z[:, 0] > edge) for edge in edges)
    threshold = f1_threshold(z)
    assert expected_f1(p, z[:, 0] > threshold) == pytest.approx(best, rel=1e-12)
    # Half the best F1, as a probability; so never above one half.
    assert probabilities(np.array([[threshold]]))[0, 0] == pytest.approx(best / 2)
    assert threshold <= 0


@pytest.mark.filterwarnings("error")
def test_thresholds_of_plain_cases():
    sure = np.array([[-9.0]] * 20 + [[9.0]] * 5)
    assert -0.01 < f1_threshold(sure) < 0
    # Nothing is known: deciding for all has F1 2/3.
    assert f1_threshold(np.zeros((50, 1))) == pytest.approx(np.log(0.5))
    # All are unlikely, and alike: all or none, and none has F1 0.
    low = f1_threshold(np.full((50, 1), -4.0))
    assert -5 < low < -4


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("z", [-700.0, -800.0, -1e6])
def test_a_threshold_is_finite_however_sure_the_model_is(z):
    assert np.isfinite(f1_threshold(np.full((12, 1), z)))


def test_a_move_is_the_mean_change_of_probability():
    before, after = np.zeros((4, 1)), np.array([[0.0], [0.0], [50.0], [-50.0]])
    assert move(before, before) == 0
    assert move(before, after) == pytest.approx(0.25)
    # A softmax does not change when all logits move together.
    logits = np.random.default_rng(0).normal(size=(5, 3))
    assert move(logits, logits + 1) == pytest.approx(0)
