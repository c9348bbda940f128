"""Coordinates of Cholesky factors of covariances: standard deviations and correlations."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.gradient import jacobian
from scipy import stats

import pymc_geodesic as pg
from pymc_geodesic.densities.cholesky_factors import LogSdsAndCorrelations
from tests.steps.runs import sample


@pytest.mark.parametrize("n", [2, 3, 5])
def test_inverse_and_jacobian(n):
    transform, value = LogSdsAndCorrelations(n), pt.dvector("value")
    factor = transform.backward(value)
    evaluate = pytensor.function(
        [value], [factor, transform.log_jac_det(value), jacobian(factor, value)]
    )
    forward = pytensor.function([value], transform.forward(value))
    for scale in (0.0, 0.5, 3.0):
        x = scale * np.random.default_rng(n).normal(size=n * (n + 1) // 2)
        packed, log_determinant, derivatives = evaluate(x)
        np.testing.assert_allclose(log_determinant, np.linalg.slogdet(derivatives)[1], atol=1e-8)
        np.testing.assert_allclose(forward(packed), x, atol=1e-8)


def test_coordinates_are_log_standard_deviations_and_partial_correlations():
    covariance = np.cov(np.random.default_rng(1).normal(size=(3, 9)))
    factor = np.linalg.cholesky(covariance)[np.tril_indices(3)]
    x = LogSdsAndCorrelations(3).forward(factor).eval()
    np.testing.assert_allclose(np.exp(x[[0, 2, 5]]) ** 2, np.diagonal(covariance))
    sd = np.sqrt(np.diagonal(covariance))
    correlation = covariance / np.outer(sd, sd)
    np.testing.assert_allclose(np.tanh(x[[1, 3]]), correlation[0, 1:])
    precision = np.linalg.inv(covariance)
    partial = -precision[1, 2] / np.sqrt(precision[1, 1] * precision[2, 2])
    np.testing.assert_allclose(np.tanh(x[4]), partial)


@pytest.mark.parametrize(
    "step",
    [
        lambda: pg.GMC(metric="dense"),
        pytest.param(pg.SGGMC, marks=pytest.mark.slow),
    ],
    ids=["GMC", "SGGMC"],
)
def test_prior_of_sds_and_correlations(step):
    """HalfNormal standard deviations and a symmetric Beta distribution of the correlation."""
    with pm.Model() as model:
        pm.LKJCholeskyCov("chol", n=2, eta=2.0, sd_dist=pm.HalfNormal.dist(1.0))
        made = step()
    run = sample(model, made, chains=4, tune=1000, draws=2000, compile_kwargs=None).posterior
    sds, correlation = run["chol_stds"].values, run["chol_corr"].values[..., 0, 1]
    for draws, exact in (
        (sds[..., 0], stats.halfnorm()),
        (sds[..., 1], stats.halfnorm()),
        ((1.0 + correlation) / 2.0, stats.beta(2.0, 2.0)),
    ):
        levels = [0.02, 0.25, 0.5, 0.75, 0.98]
        below = [(draws < exact.ppf(level)).mean() for level in levels]
        np.testing.assert_allclose(below, levels, atol=0.02)


# --- a posterior ---------------------------------------------------------------------------------

N_GROUPS, N_ROWS = 6, 8


def varying_slopes(sd_slope, correlation):
    """Model with unit noise, and log-density of (log sd, log sd, Fisher's z) without effects."""
    rng = np.random.default_rng(1)
    group, x = np.repeat(np.arange(N_GROUPS), N_ROWS), rng.normal(size=N_GROUPS * N_ROWS)
    covariance = np.array([[0.64, 0.8 * sd_slope * correlation], [0.0, sd_slope**2]])
    covariance[1, 0] = covariance[0, 1]
    effects = rng.multivariate_normal(np.zeros(2), covariance, size=N_GROUPS)
    y = effects[group, 0] + effects[group, 1] * x + rng.normal(size=x.size)
    with pm.Model() as model:
        chol, *_ = pm.LKJCholeskyCov("chol", n=2, eta=2.0, sd_dist=pm.HalfNormal.dist(1.0))
        u = pm.MvNormal("u", 0.0, chol=chol, shape=(N_GROUPS, 2))
        pm.Normal("y", u[group, 0] + u[group, 1] * x, 1.0, observed=y)
    designs = [np.column_stack([np.ones(N_ROWS), x[group == k]]) for k in range(N_GROUPS)]

    def log_density(s, t, w):
        sds, r = np.exp([s, t]), np.tanh(w)
        c = r * sds[0] * sds[1]
        within = np.moveaxis(np.array([[sds[0] ** 2, c], [c, sds[1] ** 2]]), (0, 1), (-2, -1))
        # sds have the density exp(−sd²/2) sd, Fisher's z has (1 − r²)², for η = 2
        total = (-0.5 * sds**2 + np.array([s, t])).sum(axis=0) + 2.0 * np.log1p(-(r**2))
        for k, design in enumerate(designs):
            precision = design.T @ design
            shrinkage = np.linalg.inv(np.eye(2) + within @ precision) @ within
            projected = design.T @ y[group == k]
            total += 0.5 * np.einsum("i,...ij,j->...", projected, shrinkage, projected)
            total -= 0.5 * np.linalg.slogdet(np.eye(2) + within @ precision)[1]
        return total

    return model, log_density


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sd_slope", "correlation"), [(0.02, 0.0), (0.8, 0.95)], ids=["weak slopes", "high correlation"]
)
def test_tails_of_sds_and_correlations(sd_slope, correlation):
    """Probabilities below and above quantiles, by quadrature."""
    model, log_density = varying_slopes(sd_slope, correlation)
    axes = np.linspace(-5.0, 2.0, 110), np.linspace(-11.0, 2.0, 160), np.linspace(-5.0, 5.0, 110)
    density = np.exp(log_density(*np.meshgrid(*axes, indexing="ij")))
    with model:
        step = pg.GMC()
    run = sample(model, step, chains=8, tune=1000, draws=3000, compile_kwargs=None).posterior
    factor = np.moveaxis(run["chol"].values, -1, 0)
    found = (
        np.log(factor[0]),
        0.5 * np.log(factor[1] ** 2 + factor[2] ** 2),
        np.arcsinh(factor[1] / factor[2]),
    )
    for k, (axis, draws) in enumerate(zip(axes, found, strict=True)):
        weights = density.sum(axis=tuple({0, 1, 2} - {k}))
        cumulative = np.cumsum(weights) / weights.sum()
        for level in (0.005, 0.02, 0.98, 0.995):
            quantile = np.interp(level, cumulative, axis + 0.5 * (axis[1] - axis[0]))
            tail = min(level, 1.0 - level)
            beyond = draws < quantile if level < 0.5 else draws > quantile
            assert beyond.mean() == pytest.approx(tail, rel=0.3 if tail < 0.01 else 0.2)


@pytest.mark.slow
@pytest.mark.parametrize(
    "step",
    [lambda: pg.GMC(metric="dense"), lambda: pg.SGGMC(batch_size=100)],
    ids=["dense", "minibatches"],
)
def test_correlated_effects_without_partial_centering(step):
    """Means and standard deviations of the covariance are those of the default of GMC."""
    rng = np.random.default_rng(2)
    group, x = rng.integers(0, 12, size=1200), rng.normal(size=1200)
    effects = rng.multivariate_normal(np.zeros(2), [[0.5, 0.2], [0.2, 0.3]], size=12)
    with pm.Model() as model:
        chol, *_ = pm.LKJCholeskyCov("chol", n=2, eta=2.0, sd_dist=pm.HalfNormal.dist(1.0))
        u = pm.MvNormal("u", 0.0, chol=chol, shape=(12, 2))
        mean = effects[group, 0] + effects[group, 1] * x
        pm.Normal("y", u[group, 0] + u[group, 1] * x, 1.0, observed=rng.normal(mean))
        steps = pg.GMC(), step()
    runs = [
        sample(model, each, chains=2, tune=1000, draws=1000, compile_kwargs=None).posterior
        for each in steps
    ]
    expected, found = (run["chol"].values.reshape(-1, 3) for run in runs)
    sd = expected.std(axis=0)
    np.testing.assert_allclose(found.mean(axis=0), expected.mean(axis=0), atol=0.15 * sd.min())
    np.testing.assert_allclose(found.std(axis=0), sd, rtol=0.15)
