"""Bridges that a vendor fits with the SDK alone."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from fala.base.errors import DataError
from fala_export.fit import bridge as bridge_fit
from fala_export.fit.bridge import fit_bridge, learn_bridge


def linear(n, d_old, d_new, noise, seed):
    """Embeddings (n, d_old) and (n, d_new) of which the second are an affine map of the first."""
    random = np.random.default_rng(seed)
    old = random.normal(size=(n, d_old)) * np.geomspace(3, 0.3, d_old) + 1
    matrix, offset = random.normal(size=(d_old, d_new)), random.normal(size=d_new)
    new = old @ matrix + offset + noise * random.normal(size=(n, d_new))
    return old.astype(np.float32), new.astype(np.float32), matrix, offset


@pytest.mark.parametrize("noise", [0.1, 3.0, 100.0])
def test_a_bridge_is_a_ridge_fit_to_all_texts(noise):
    old, new, _, _ = linear(120, 40, 5, noise, seed=9)
    bridge = fit_bridge("source", old, new)
    unit = old.astype(np.float64).var(axis=0).mean()
    peers = [Ridge(alpha=s * unit).fit(old, new) for s in bridge_fit._STRENGTHS]
    assert bridge.source == "source"
    assert {bridge.matrix.dtype, bridge.offset.dtype, bridge.variance.dtype} == {np.dtype("f4")}
    gaps = [np.abs(peer.coef_.T - bridge.matrix).max() for peer in peers]
    assert min(gaps) < 1e-4 * np.abs(bridge.matrix).max()
    np.testing.assert_allclose(
        bridge.offset, peers[int(np.argmin(gaps))].intercept_, rtol=1e-3, atol=1e-3
    )


def test_the_variance_of_a_bridge_is_its_error():
    # With 40 dimensions the fit to its own 64 texts leaves far less than the noise.
    old, new, matrix, offset = linear(80, 40, 30, 1.0, seed=10)
    bridge = fit_bridge("source", old, new)
    fresh, _, _, _ = linear(4000, 40, 30, 0.0, seed=11)
    random = np.random.default_rng(12)
    truth = fresh @ matrix + offset + random.normal(size=(4000, 30))
    error = ((bridge.map(fresh) - truth) ** 2).mean()
    assert ((bridge.map(old) - new) ** 2).mean() < 0.8
    assert error / 1.3 < bridge.variance.mean() < error * 1.8


def test_some_of_many_texts_are_drawn(monkeypatch):
    monkeypatch.setattr(bridge_fit, "_MOST", 100)
    old, new, _, _ = linear(1000, 4, 3, 0.5, seed=14)
    drawn = np.sort(np.random.default_rng(0).permutation(1000)[:100])
    unread = np.setdiff1d(np.arange(1000), drawn)
    bridge = fit_bridge("source", old, new)
    old[unread] = np.nan
    np.testing.assert_array_equal(fit_bridge("source", old, new).matrix, bridge.matrix)
    old[drawn[0]] = np.nan
    with pytest.raises(DataError, match="not finite"):
        fit_bridge("source", old, new)


def test_a_bridge_from_noise_maps_to_the_mean():
    random = np.random.default_rng(13)
    old, new = random.normal(size=(200, 20)), random.normal(size=(200, 4)) + 5
    bridge = fit_bridge("source", old.astype(np.float32), new.astype(np.float32))
    mapped = bridge.map(random.normal(size=(50, 20)).astype(np.float32))
    assert np.abs(mapped - new.mean(axis=0)).max() < 0.3
    np.testing.assert_allclose(bridge.variance, new.var(axis=0), rtol=0.4)
    # It would be positive if the map were learned on held-out texts.
    _, details = learn_bridge("source", old.astype(np.float32), new.astype(np.float32))
    assert details["explained"] < 0.05


def test_the_explained_variance_is_that_of_held_out_texts():
    old, new, _, _ = linear(400, 6, 8, 0.0, seed=9)
    _, details = learn_bridge("source", old, new)
    assert details["explained"] > 0.9999
    assert (details["documents"], details["held_out"]) == (400, 80)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (np.ones((14, 10)), np.ones((14, 3)), "14 distinct public texts are too few.*needs 15"),
        (
            np.zeros((50, 4)),
            np.eye(50),
            "earlier backbone gives all public texts the same embedding",
        ),
        (
            np.eye(50)[:, :4],
            np.full((50, 3), 0.1),
            "new backbone gives all public texts the same embedding",
        ),
        (np.eye(50)[:, :4], np.ones((49, 3)), "the same texts"),
        (np.ones(50), np.ones((50, 3)), "the same texts"),
        (np.full((50, 4), np.nan), np.ones((50, 3)), "not finite"),
    ],
)
def test_unusable_embeddings_are_rejected(old, new, message):
    with pytest.raises(DataError, match=message):
        fit_bridge("source", old.astype(np.float32), new.astype(np.float32))
