"""Models with rows in heterogeneous shards, and their posteriors."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_geodesic as pg

SIZES = (300, 500, 450)
"""Numbers of rows of the shards, all different."""


def shards_of(**arrays):
    """Divide rows into shards."""
    cuts = np.cumsum(SIZES)[:-1]
    parts = {name: np.split(array, cuts) for name, array in arrays.items()}
    return [{name: parts[name][i] for name in parts} for i in range(len(SIZES))]


def sorted_regression(seed=1):
    """Linear regression with rows sorted by outcome: model, shards, exact mean and covariance."""
    rng = np.random.default_rng(seed)
    n = sum(SIZES)
    x = rng.normal(size=(n, 2)) * [1.0, 3.0]
    y = x @ [0.5, -0.2] + rng.normal(size=n)
    order = np.argsort(y)
    x, y = x[order], y[order]
    with pm.Model() as model:
        covariates, outcome = pm.Data("x", x[:3]), pm.Data("y", y[:3])
        beta = pm.Normal("beta", 0.0, 2.0, shape=2)
        pm.Normal("outcome", covariates @ beta, 1.0, observed=outcome)
    precision = x.T @ x + np.eye(2) / 4
    covariance = np.linalg.inv(precision)
    return model, shards_of(x=x, y=y), covariance @ x.T @ y, covariance


def sorted_directions(seed=2, kappa=5.0):
    """Directions sorted by an angle, with a positive scale: model and shards."""
    rng = np.random.default_rng(seed)
    v = rng.normal([1.0, 0.5, 0.0], size=(sum(SIZES), 3))
    v /= np.linalg.norm(v, axis=1, keepdims=True)
    v = v[np.argsort(v[:, 1])]
    w = rng.gamma(2.0, size=len(v))
    with pm.Model() as model:
        rows, weights = pm.Data("v", v[:3]), pm.Data("w", w[:3])
        scale = pm.HalfNormal("scale", 2.0)
        mu = pg.UniformSphere("mu", shape=3)
        pg.VonMisesFisher("directions", mu, kappa, observed=rows)
        pm.Exponential("weights", 1.0 / scale, observed=weights)
        pm.Potential("pull", 0.3 * pt.sin(mu[0]) * scale)
    return model, shards_of(v=v, w=w)
