"""Posteriors of directions and frames: closed forms, quadrature, simulation-based calibration."""

from functools import cache

import arviz as az
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy import integrate, stats

from pymc_geodesic import (
    GMC,
    MatrixBingham,
    MatrixVonMisesFisher,
    PowerSpherical,
    UniformSphere,
    WrappedCauchy,
    rotation_to,
)
from pymc_geodesic.distributions.matrix_bingham import draw_matrix_bingham
from pymc_geodesic.distributions.matrix_von_mises_fisher import draw_matrix_von_mises_fisher
from tests.distributions.test_matrix_von_mises_fisher import exact_moments, frames_by_quadrature
from tests.grids import by_default

GRID = np.linspace(-np.pi, np.pi, 721)[:-1]


def sampled(model, step):
    with model:
        return pm.sample(
            500, tune=500, chains=2, cores=1, step=step(), random_seed=7, progressbar=False,
            compute_convergence_checks=False, quiet=True,
        ).posterior  # fmt: skip


def assert_mean(values, expected):
    """Compare a mean with the exact one, in Monte Carlo errors."""
    error = values.std() / np.sqrt(float(az.ess(values)))
    assert abs(values.mean() - expected) < 5 * error
    assert error < 0.1 * values.std()


def test_mean_direction_of_a_wrapped_cauchy_distribution():
    """Angles around the discontinuity at π, sampled by NUTS."""
    x = np.array([2.9, -3.0, 2.2, -2.6, 3.1, 0.4, -2.9, 2.7])
    with pm.Model() as model:
        mu = WrappedCauchy("mu", 0.0, 0.0)
        WrappedCauchy("x", mu, 0.5, observed=x)
    density = np.prod(0.75 / (1.25 - np.cos(x[:, None] - GRID)), axis=0)
    draws = sampled(model, pm.NUTS)["mu"].values
    for part in (np.cos, np.sin):
        assert_mean(part(draws), density @ part(GRID) / density.sum())


@pytest.mark.slow
def test_regression_of_directions():
    """Directions that depend on a covariate around an unknown mean, sampled by GMC."""
    z = np.linspace(-1.0, 1.0, 9)
    bearing = 1.8 + np.arctan(0.9 * z) + np.array([2, -1, -3, 1, 2, -2, 3, 0, -2]) / 10
    x = np.stack([np.sin(bearing), np.cos(bearing)], axis=-1)
    with pm.Model() as model:
        overall = UniformSphere("overall", shape=2)
        slope = pm.Normal("slope")
        local = pt.stack([slope * z, np.ones(9)], axis=1)
        local = local / pt.sqrt((local**2).sum(axis=1, keepdims=True))
        PowerSpherical("x", local @ rotation_to(overall).T, 6.0, observed=x)
    slopes = np.linspace(-3.0, 5.0, 321)
    away = bearing - GRID[:, None, None] - np.arctan(slopes[:, None] * z)
    log_density = 6.0 * np.log1p(np.cos(away)).sum(axis=-1) - slopes**2 / 2
    density = np.exp(log_density - log_density.max())
    density /= density.sum()
    posterior = sampled(model, GMC)
    assert_mean(posterior["slope"].values, (density @ slopes).sum())
    assert_mean(posterior["slope"].values ** 2, (density @ slopes**2).sum())
    for axis, part in enumerate((np.sin, np.cos)):
        expected = part(GRID) @ density.sum(axis=1)
        assert_mean(posterior["overall"].values[..., axis], expected)


LARGEST, FRAMES = 10.0, 6
"""Upper bound of the uniform prior of a concentration, and number of frames of a data set."""


def mean_frame(n, p):
    axes = np.linalg.qr(np.random.default_rng(2).normal(size=(n, n)))[0]
    turn = np.linalg.qr(np.random.default_rng(3).normal(size=(p, p)))[0]
    return axes[:, :p] * np.array([1.0, 0.7, 0.2])[:p] @ turn


A3 = np.array([[1.0, 0.5, 0.0], [0.5, -1.0, 0.3], [0.0, 0.3, 0.4]])

CASES = {
    "matrix von Mises–Fisher, 3 × 2": (
        lambda kappa: MatrixVonMisesFisher.dist(kappa * mean_frame(3, 2)),
        lambda rng, kappa, size: draw_matrix_von_mises_fisher(rng, kappa * mean_frame(3, 2), size),
        lambda x: np.einsum("ij,...ij->...", mean_frame(3, 2), x),
    ),
    "matrix von Mises–Fisher, 4 × 3": (
        lambda kappa: MatrixVonMisesFisher.dist(kappa * mean_frame(4, 3)),
        lambda rng, kappa, size: draw_matrix_von_mises_fisher(rng, kappa * mean_frame(4, 3), size),
        lambda x: np.einsum("ij,...ij->...", mean_frame(4, 3), x),
    ),
    "matrix Bingham, 3 × 2": (
        lambda kappa: MatrixBingham.dist(kappa * A3, [1.0, -0.5]),
        lambda rng, kappa, size: np.stack(
            [draw_matrix_bingham(rng, each * A3, [1.0, -0.5], size[1:]) for each in kappa.ravel()]
        ),
        lambda x: np.einsum("...ij,ik,...kj,j->...", x, A3, x, [1.0, -0.5]),
    ),
}


@cache
def simulated(case):
    """Return true concentrations, sums of the statistic of data sets, and constants on a grid."""
    make, draw, statistic = CASES[case]
    rng = np.random.default_rng(1)
    truth = rng.uniform(0.0, LARGEST, 200)
    x = draw(rng, truth[:, None, None, None], (truth.size, FRAMES))
    kappa = pt.dscalar("kappa")
    mode = "FAST_COMPILE" if case.startswith("matrix von Mises–Fisher, 3") else "NUMBA"
    log_density = pytensor.function([kappa], pm.logp(make(kappa), x[0, 0]), mode=mode)
    grid = np.linspace(0.0, LARGEST, 121)
    constant = np.array([log_density(each) for each in grid]) - grid * statistic(x[0, 0])
    return truth, statistic(x).sum(axis=-1), grid, constant


def p_value(case, with_constant=True):
    """Test that the posterior rank of the truth is uniform, by sums on a grid."""
    truth, total, grid, constant = simulated(case)
    log_posterior = total[:, None] * grid + FRAMES * constant * with_constant
    mass = np.exp(log_posterior - log_posterior.max(axis=-1, keepdims=True))
    cumulative = integrate.cumulative_simpson(mass, x=grid, initial=0.0)
    ranks = [np.interp(t, grid, c / c[-1]) for t, c in zip(truth, cumulative, strict=True)]
    return stats.kstest(ranks, "uniform").pvalue


@pytest.mark.parametrize("case", by_default(["matrix von Mises–Fisher, 3 × 2"], of=CASES))
def test_posteriors_of_a_concentration_are_calibrated(case):
    assert p_value(case) > 1e-4
    assert p_value(case, with_constant=False) < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("lengths", [(4.0, 1.5), (3.0, 3.0), (2.0, 0.0), (0.0, 0.0)])
def test_the_gradient_in_F_is_away_from_the_mean_frame(lengths):
    """Also for equal or zero singular values, whose axes are not determined."""
    axes = np.linalg.qr(np.random.default_rng(2).normal(size=(3, 3)))[0]
    value = axes[:, :2] * lengths @ np.array([[0.6, -0.8], [0.8, 0.6]])
    frames, weights = frames_by_quadrature()
    F = pt.tensor("F", shape=(3, 2))
    log_density = pm.logp(MatrixVonMisesFisher.dist(F), frames[7])
    gradient = pytensor.grad(log_density, F).eval({F: value}, mode="FAST_COMPILE")
    expected = frames[7] - exact_moments(value, frames, weights)[0]
    np.testing.assert_allclose(gradient, expected, atol=1e-10)


@pytest.mark.slow
def test_nuts_draws_the_posterior_of_a_parameter_matrix():
    """With few observations, against importance-weighted draws of the prior."""
    rng = np.random.default_rng(1)
    truth = np.array([[3.0, 0.0], [1.0, 2.0], [0.0, -1.0]])
    observed = draw_matrix_von_mises_fisher(rng, truth, (3,))
    with pm.Model():
        F = pm.Normal("F", 0.0, 2.0, shape=(3, 2))
        MatrixVonMisesFisher("X", F, observed=observed)
        idata = pm.sample(
            2000, chains=2, cores=1, nuts_sampler="pymc", random_seed=1, progressbar=False
        )
    prior = rng.normal(0.0, 2.0, size=(200_000, 3, 2))
    batch = pt.tensor("batch", shape=(None, 3, 2))
    density = pytensor.function([batch], pm.logp(MatrixVonMisesFisher.dist(batch), observed[0]))
    log_weight = np.concatenate([density(part) for part in np.split(prior, 200)])
    log_weight *= len(observed)
    others = observed.sum(axis=0) - len(observed) * observed[0]
    log_weight += np.einsum("ij,kij->k", others, prior)
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    assert 1.0 / np.sum(weight**2) > 1000
    sample = idata.posterior["F"].values
    for power in (1, 2):
        expected = np.einsum("k,kij->ij", weight, prior**power)
        variances = np.einsum("k,kij->ij", weight**2, (prior**power - expected) ** 2)
        for i, j in np.ndindex(3, 2):
            entry = sample[..., i, j] ** power
            error = np.hypot(entry.std() / np.sqrt(float(az.ess(entry))), np.sqrt(variances[i, j]))
            assert abs(entry.mean() - expected[i, j]) < 4.0 * error
    assert not idata.sample_stats["diverging"].any()
