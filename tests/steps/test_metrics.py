"""User-specified metrics, and low-rank metrics of many coordinates."""

import pickle

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from arviz_stats.base import array_stats

import pymc_geodesic as pg
from pymc_geodesic.gradients.metric import LowRank
from tests.grids import cross, slow

COVARIANCE = np.array([[4.0, 0.9, 0.0], [0.9, 0.25, 0.1], [0.0, 0.1, 100.0]])


def normal_model() -> pm.Model:
    """A normal distribution of two variables, and an independent direction."""
    precision = np.linalg.inv(COVARIANCE)
    with pm.Model() as model:
        direction = pg.UniformSphere("direction", shape=3)
        a = pm.Flat("a", initval=0.0)
        b = pm.Flat("b", shape=2, initval=[0.0, 0.0])
        x = pt.concatenate([a[None], b])
        pm.Potential("p", -0.5 * x @ pt.as_tensor(precision) @ x + 3.0 * direction[0])
    return model


def chain(step, n_tune, n_draws, seed=1):
    step.setup_chain(np.random.default_rng(seed), n_tune, n_draws)
    point = step.model.initial_point(random_seed=1)
    return advance(step, point, n_tune, n_tune + n_draws)


def advance(step, point, n_tune, n):
    draws = []
    for _ in range(n):
        if step.draw == n_tune:
            step.stop_tuning()
        point, _ = step.step(point)
        draws.append(step.sampler.position.copy())
    return point, np.array(draws)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize(
    ("kind", "metric"),
    [
        (pg.GMC, COVARIANCE),
        (pg.SGGMC, np.diag(COVARIANCE)),
        slow(pg.GMC, np.diag(COVARIANCE)),
        slow(pg.SGGMC, COVARIANCE),
        slow(pg.SGLD, COVARIANCE),
        slow(pg.SGLD, np.diag(COVARIANCE)),
    ],
)
def test_user_specified_covariance_is_used_unchanged(kind, metric):
    names = ["a", "b"] if kind is pg.SGLD else None
    step = kind(names, model=normal_model(), metric=metric)
    _, draws = chain(step, 150, 10)
    factor = step.adaptation.gradient.metric.factor
    whole = factor if factor.ndim == 2 else np.diag(factor)
    expected = metric if metric.ndim == 2 else np.diag(metric)
    np.testing.assert_allclose(whole @ whole.T, expected, rtol=1e-10, atol=1e-12)
    assert np.isfinite(draws).all()


@pytest.mark.usefixtures("interpreted")
def test_right_covariance_makes_draws_nearly_independent():
    step = pg.GMC(model=normal_model(), metric=COVARIANCE)
    _, draws = chain(step, 300, 1000)
    x = draws[300:, :3]
    assert min(sizes(x)) > 400.0
    assert np.abs(x.std(axis=0) / np.sqrt(np.diag(COVARIANCE)) - 1.0).max() < 0.15


def sizes(x: np.ndarray) -> list[float]:
    return [
        float(array_stats.ess(x[np.newaxis, :, j], chain_axis=0, draw_axis=1))
        for j in range(x.shape[1])
    ]


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize(
    ("kind", "metric", "message"),
    cross([pg.GMC, pg.SGGMC, pg.gSGNHT, pg.SSGNHT, pg.SGLD], [
        ("full", "metric='full' is unknown"),
        (np.ones((3, 2)), r"has shape \(3, 2\)\. Pass d variances"),
        (np.ones((2, 2, 2)), r"has shape \(2, 2, 2\)"),
        (np.array([1.0, -2.0, 1.0]), "the variance -2 of coordinate 1"),
        (np.array([1.0, np.nan, 1.0]), "NaN or infinity"),
        (COVARIANCE + np.triu(np.full((3, 3), 0.1), 1), "is not symmetric"),
        (COVARIANCE + np.eye(3)[[1, 0, 2]], "is not positive definite"),
        (np.ones(4), r"4 coordinates, but .* has 3 Euclidean coordinates: a \(1\), b \(2\)"),
        (np.eye(2), r"2 coordinates, but this step has 3 .*: a \(1\), b \(2\)\. Pass"),
    ]),
)  # fmt: skip
def test_invalid_covariance_raises(kind, metric, message):
    names = ["a", "b"] if kind in (pg.SSGNHT, pg.SGLD) else None
    with pytest.raises(ValueError, match=message):
        kind(names, model=normal_model(), metric=metric)


@pytest.mark.usefixtures("interpreted")
def test_variables_come_in_the_order_of_vars():
    with pytest.raises(ValueError, match=r"has 3 Euclidean coordinates: b \(2\), a \(1\)"):
        pg.SGGMC(["b", "a"], model=normal_model(), metric=np.eye(2))


def thousand(d: int = 1000, n_strong: int = 5):
    """A normal distribution with scales of 0.1 to 10 and a few directions of 10 to 100 of them."""
    rng = np.random.default_rng(3)
    directions, _ = np.linalg.qr(rng.normal(size=(d, n_strong)))
    variances = np.geomspace(1e2, 1e4, n_strong)
    scales = 10.0 ** rng.uniform(-1, 1, size=d)
    with pm.Model() as model:
        x = pm.Flat("x", shape=d, initval=np.zeros(d))
        z = x / scales
        along = pt.as_tensor(directions).T @ z
        pm.Potential("p", -0.5 * (pt.sum(z**2) + pt.sum((1.0 / variances - 1.0) * along**2)))
    return model, directions / scales[:, np.newaxis], variances


@pytest.mark.slow
def test_strong_directions_of_a_thousand_coordinates_are_estimated():
    model, directions, variances = thousand()
    found = {}
    for metric in ("diag", "auto"):
        step = pg.GMC(model=model, metric=metric)
        _, draws = chain(step, 1000, 500)
        along = draws[1000:] @ directions
        found[metric] = min(sizes(along))
        if metric == "auto":
            factor = step.adaptation.gradient.metric.factor
            assert isinstance(factor, LowRank)
            assert factor.stretch.size <= 10
            assert np.abs(along.std(axis=0) / np.sqrt(variances) - 1.0).max() < 0.3
    assert found["diag"] < 5.0
    assert found["auto"] > 100.0


@pytest.mark.usefixtures("interpreted")
def test_replays_with_few_directions():
    model, *_ = thousand(600, 3)
    step = pg.SGGMC(model=model)
    point, _ = chain(step, 120, 3, seed=3)
    assert step.adaptation.gradient.metric.factor.stretch.size > 0
    state = pickle.loads(pickle.dumps(step.sampling_state))
    _, expected = advance(step, point, 120, 5)
    other = pg.SGGMC(model=model)
    other.setup_chain(np.random.default_rng(9), 120, 3)
    other.sampling_state = state
    _, found = advance(other, point, 120, 5)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kind", [pg.GMC, pg.SGGMC])
def test_dense_metric_of_more_coordinates_than_draws(kind):
    """Scales of random directions differ by factors of hundreds."""
    d, rng = 120, np.random.default_rng(1)
    basis = np.linalg.qr(rng.normal(size=(d, d)))[0]
    precision = basis * np.exp(rng.normal(0.0, 3.0, size=d)) @ basis.T
    with pm.Model() as model:
        x = pm.Flat("x", shape=d, initval=np.zeros(d))
        pm.Potential("p", -0.5 * x @ pt.as_tensor(precision) @ x)
    draws = chain(kind(model=model), 300, 200)[1][300:]
    ess = array_stats.ess(draws[None], method="bulk", chain_axis=0, draw_axis=1)
    assert np.min(ess) > 40


@pytest.mark.parametrize("step_class", [pg.GMC, pg.SGGMC])
def test_constant_gradients_leave_the_metric_finite(step_class):
    """Independent Laplace variables: a window often has draws of one sign only."""
    with pm.Model():
        pm.Laplace("x", 0.0, 1.0, shape=8)
        step = step_class(compile_kwargs={"mode": "FAST_COMPILE"})
    x = chain(step, 1000, 1000)[1][1000:]
    np.testing.assert_allclose(np.std(x, axis=0), np.sqrt(2.0), rtol=0.35)
