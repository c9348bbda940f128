"""Posteriors of models of directions and angles, sampled, against quadrature."""

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_geodesic import GMC, PowerSpherical, UniformSphere, WrappedCauchy, rotation_to

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


def test_mean_direction_of_a_wrapped_cauchy_law():
    """Angles around the cut at π, so that a plain mean would be wrong, by NUTS."""
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
    """A bearing turns with a covariate around an overall one, both unknown, by GMC."""
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
