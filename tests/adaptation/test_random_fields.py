"""Posterior of group effects and a random field, against quadrature."""

import numpy as np
import pymc as pm

import pymc_geodesic as pg
from tests.steps.runs import sample

N = 60
NOISE_SD = 0.5


def test_scale_of_effects_next_to_a_random_field():
    """Given the scale of the effects, the observations are normal with a known covariance.

    The gradients per draw are those of the dense metric, 3 to 4; the sparse one needs 16 to 23.
    """
    x = np.arange(N) / N
    covariance = np.exp(-0.5 * ((x[:, None] - x) / 0.1) ** 2) + 1e-4 * np.eye(N)
    rng = np.random.default_rng(1)
    y = rng.multivariate_normal(np.zeros(N), covariance + (0.7**2 + NOISE_SD**2) * np.eye(N))
    with pm.Model() as model:
        scale = pm.HalfNormal("scale")
        effect = pm.Normal("effect", 0.0, scale, shape=N)
        pm.Normal("y", pm.MvNormal("f", np.zeros(N), covariance) + effect, NOISE_SD, observed=y)
        step = pg.GMC()
    idata = sample(model, step, draws=2000, tune=1000)

    scales = np.linspace(1e-3, 4.0, 2000)
    values, vectors = np.linalg.eigh(covariance)
    variances = values + NOISE_SD**2 + scales[:, None] ** 2
    log_density = -0.5 * (
        scales**2 + np.sum(np.log(variances) + (vectors.T @ y) ** 2 / variances, axis=1)
    )
    weights = np.exp(log_density - log_density.max())
    mean = np.average(scales, weights=weights)
    sd = np.sqrt(np.average((scales - mean) ** 2, weights=weights))
    draws = idata.posterior["scale"].values
    assert abs(draws.mean() - mean) < 0.3 * sd  # five standard errors of 300 effective draws
    assert abs(draws.std() / sd - 1.0) < 0.3
    assert idata.sample_stats["n_grad"].values.mean() < 8.0
