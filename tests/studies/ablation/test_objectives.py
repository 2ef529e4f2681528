"""The objectives of the paper's Table 5: the minimum is one, however it is approached."""

import numpy as np
import pytest

from situations import situation
from studies.ablation.objectives import fit_left_out, fit_objective


@pytest.mark.parametrize("labels", [2, 3])
@pytest.mark.parametrize("known", ["labels", "both"])
@pytest.mark.parametrize("n", [8, 60])
def test_no_step_from_the_minimum_is_better(labels, known, n):
    where = situation(labels=labels)
    head, inputs = where.new.head, where.new.inputs(where.user.train[:n])
    shares = where.label_shares()[:n]
    logits = where.old_logits(where.user.train[:n]) if known == "both" else None

    def loss(theta):
        z = np.einsum("ncd,cd->nc", head.features(inputs), theta) + head.bias
        total = head.link.losses(shares, z).sum()
        if logits is not None:
            total += ((z - logits) ** 2).sum() / 8
        return total / n + 0.01 * (theta**2).sum()

    theta = fit_objective(head, inputs, logits, shares, 0.01).theta
    random = np.random.default_rng(0)
    for size in (1e-3, 1e-1):
        for _ in range(10):
            assert loss(theta + size * random.normal(size=theta.shape)) > loss(theta)


def test_a_user_of_one_label_has_a_penalty_too():
    where = situation(train=12, one_class=True)
    inputs = where.new.inputs(where.user.train)
    model = fit_left_out(where.new.head, inputs, where.label_shares(), 0)
    assert np.isfinite(model.theta).all()
