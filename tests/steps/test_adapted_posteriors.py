"""Default settings with minibatches, against known posteriors."""

import math
from typing import NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy.special import ive

import pymc_geodesic as pg

pytestmark = pytest.mark.slow

MEAN_LIMIT, SD_LIMIT = 0.1, 0.05
"""Largest error of a mean in posterior standard deviations, and of a standard deviation."""


class Known(NamedTuple):
    """A model and its known posterior.

    ``directions`` has the directions in its columns along which means and standard deviations are
    compared.
    """

    model: pm.Model
    rows: tuple[str, ...]
    batch_size: int
    names: tuple[str, ...]
    directions: np.ndarray
    mean: np.ndarray
    sd: np.ndarray


def along_principal_axes(model, rows, batch_size, names, mean, covariance) -> Known:
    """Principal axes of the scaled covariance."""
    scales = np.sqrt(np.diag(covariance))
    _, axes = np.linalg.eigh(covariance / np.outer(scales, scales))
    directions = np.hstack([np.eye(len(mean)), axes / scales[:, np.newaxis]])
    sd = np.sqrt(np.einsum("ij,ik,kj->j", directions, covariance, directions))
    return Known(model, rows, batch_size, names, directions, directions.T @ mean, sd)


def conjugate_regression() -> Known:
    rng = np.random.default_rng(1)
    n, d = 1000, 5
    scales = np.geomspace(0.01, 100.0, d)
    x = (rng.normal(size=(n, d)) + 1.0) * scales
    y = x @ (rng.normal(size=d) / scales) + rng.normal(size=n)
    precision = x.T @ x + np.diag(1e-6 * scales**2)
    with pm.Model() as model:
        rows, observed = pm.Data("x", x), pm.Data("t", y)
        b = pm.Normal("b", 0.0, 1e3 / scales)
        pm.Normal("y", rows @ b, 1.0, observed=observed)
    mean = np.linalg.solve(precision, x.T @ y)
    return along_principal_axes(model, ("x", "t"), 50, ("b",), mean, np.linalg.inv(precision))


def on_grid(log_density, centre, factor, n=61, width=6.0):
    """Mean and covariance by sums over a grid in whitened coordinates."""
    d = len(centre)
    axis = np.linspace(-width, width, n)
    z = np.stack(np.meshgrid(*[axis] * d, indexing="ij"), axis=-1).reshape(-1, d)
    points = centre + z @ factor.T
    values = np.concatenate([log_density(part) for part in np.array_split(points, 50)])
    weights = np.exp(values - values.max())
    weights /= weights.sum()
    mean = weights @ points
    return mean, (weights * (points - mean).T) @ (points - mean)


def poisson_regression() -> Known:
    rng = np.random.default_rng(2)
    n, scales = 600, np.array([1.0, 0.02, 30.0])
    x = np.column_stack([np.ones(n), rng.normal(size=(n, 2))]) * scales
    b = np.array([-0.7, 0.6, -0.5]) / scales
    y = rng.poisson(np.exp(x @ b)).astype(float)
    with pm.Model() as model:
        rows, observed = pm.Data("x", x), pm.Data("t", y)
        beta = pm.Normal("b", 0.0, 5.0 / scales)
        pm.Poisson("y", pt.exp(rows @ beta), observed=observed)

    def log_density(points):
        eta = points @ x.T
        prior = -0.5 * np.sum((points * scales / 5.0) ** 2, axis=1)
        return eta @ y - np.exp(eta).sum(axis=1) + prior

    centre = b
    for _ in range(20):
        rate = np.exp(x @ centre)
        curvature = (x.T * rate) @ x + np.diag((scales / 5.0) ** 2)
        centre = centre + np.linalg.solve(
            curvature, x.T @ (y - rate) - centre * (scales / 5.0) ** 2
        )
    mean, covariance = on_grid(log_density, centre, np.linalg.cholesky(np.linalg.inv(curvature)))
    return along_principal_axes(model, ("x", "t"), 50, ("b",), mean, covariance)


def hinge() -> Known:
    rng = np.random.default_rng(3)
    n = 400
    x = rng.normal(size=(n, 2)) * [1.0, 0.05]
    labels = np.where(x @ [1.0, 15.0] + 1.2 * rng.normal(size=n) > 0.0, 1.0, -1.0)
    scales = np.array([2.0, 40.0])
    with pm.Model() as model:
        rows, signs = pm.Data("x", x), pm.Data("t", labels)
        w = pm.Normal("w", 0.0, scales)
        pm.Potential("y", -pt.maximum(0.0, 1.0 - signs * (rows @ w)))

    def log_density(points):
        loss = np.maximum(0.0, 1.0 - labels * (points @ x.T)).sum(axis=1)
        return -loss - 0.5 * np.sum((points / scales) ** 2, axis=1)

    mean, covariance = np.array([1.0, 15.0]), np.diag([0.5, 10.0]) ** 2
    for _ in range(3):  # the grid follows what it found
        mean, covariance = on_grid(log_density, mean, np.linalg.cholesky(covariance), 401, 7.0)
    return along_principal_axes(model, ("x", "t"), 40, ("w",), mean, covariance)


def mean_direction(d: int) -> Known:
    """Uniform prior, κ known: the posterior is von Mises–Fisher around the sum of the rows."""
    rng = np.random.default_rng(4)
    n, kappa = 2000, 0.6 * d
    truth = np.eye(d)[0]
    dist = pg.VonMisesFisher.dist(truth, kappa, shape=(n, d))
    x = pm.draw(dist, random_seed=rng)
    with pm.Model() as model:
        rows = pm.Data("x", x)
        mu = pg.UniformSphere("mu", shape=d)
        pg.VonMisesFisher("y", mu, kappa, observed=rows)
    total = kappa * x.sum(axis=0)
    strength = np.linalg.norm(total)
    mode = total / strength
    cosine = ive(d / 2, strength) / ive(d / 2 - 1, strength)
    across = cosine / strength  # each tangential variance
    basis = np.linalg.qr(np.column_stack([mode, rng.normal(size=(d, d - 1))]))[0][:, 1:]
    mean = np.zeros(d - 1)
    return Known(model, ("x",), 50, ("mu",), basis, mean, np.full(d - 1, math.sqrt(across)))


def level_and_direction() -> Known:
    rng = np.random.default_rng(5)
    n, sd, prior = 500, 3.0, 10.0
    x = rng.normal(size=(n, 3)) * [1.0, 2.0, 0.7] + [0.3, 0.0, 0.2]
    y = 40.0 + x @ [0.6, 0.48, 0.64] + sd * rng.normal(size=n)
    with pm.Model() as model:
        rows, observed = pm.Data("x", x), pm.Data("t", y)
        direction = pg.UniformSphere("direction", shape=3)
        level = pm.Normal("level", 35.0, prior)
        pm.Normal("y", level + rows @ direction, sd, observed=observed)
    # given the direction the level is normal
    height = (np.arange(600) + 0.5) / 300.0 - 1.0
    turn = (np.arange(600) + 0.5) * 2.0 * np.pi / 600.0
    c, t = (a.ravel() for a in np.meshgrid(height, turn, indexing="ij"))
    points = np.column_stack([np.sqrt(1 - c**2) * np.cos(t), np.sqrt(1 - c**2) * np.sin(t), c])
    precision = n / sd**2 + prior**-2
    centred = (y - 35.0).sum() - points @ x.sum(axis=0)
    quadratic = np.einsum("ij,jk,ik->i", points, x.T @ x, points)
    values = (
        points @ (x.T @ (y - 35.0)) / sd**2
        - 0.5 * quadratic / sd**2
        + 0.5 * (centred / sd**2) ** 2 / precision
    )
    weights = np.exp(values - values.max())
    weights /= weights.sum()
    joint = np.column_stack([35.0 + centred / sd**2 / precision, points])
    mean = weights @ joint
    covariance = (weights * (joint - mean).T) @ (joint - mean)
    covariance[0, 0] += 1.0 / precision
    return along_principal_axes(model, ("x", "t"), 50, ("level", "direction"), mean, covariance)


CASES = {
    "conjugate regression": conjugate_regression,
    "Poisson regression": poisson_regression,
    "hinge": hinge,
    "direction in 3": lambda: mean_direction(3),
    "direction in 50": lambda: mean_direction(50),
    "level and direction": level_and_direction,
}


@pytest.fixture(scope="module", params=CASES, ids=str)
def known(request):
    return CASES[request.param]()


def errors(known: Known, draws: np.ndarray) -> tuple[float, float]:
    """Worst error of a mean in posterior standard deviations, and of a standard deviation."""
    along = draws @ known.directions
    return (
        float(np.abs((along.mean(axis=0) - known.mean) / known.sd).max()),
        float(np.abs(along.std(axis=0) / known.sd - 1.0).max()),
    )


@pytest.mark.parametrize("kind", [pg.gSGNHT, pg.SGGMC])
def test_posterior(kind, known):
    with known.model:
        step = kind(minibatch=list(known.rows), batch_size=known.batch_size)
        idata = pm.sample(
            draws=4000, tune=1000, chains=2, cores=1, step=step, random_seed=1,
            progressbar=False, compute_convergence_checks=False,
        )  # fmt: skip
    values = [idata.posterior[name].values.reshape(8000, -1) for name in known.names]
    mean_error, sd_error = errors(known, np.hstack(values))
    assert mean_error < MEAN_LIMIT
    assert sd_error < SD_LIMIT


def test_uneven_noise_on_a_sphere():
    """Plain gradients, whose noise differs by direction, as does the posterior."""
    known = level_and_direction()
    with known.model:
        step = pg.gSGNHT(minibatch=["x", "t"], batch_size=50, control_variates=False)
        idata = pm.sample(
            draws=4000, tune=1000, chains=2, cores=1, step=step, random_seed=1,
            progressbar=False, compute_convergence_checks=False,
        )  # fmt: skip
    draws = np.hstack([idata.posterior[name].values.reshape(8000, -1) for name in known.names])
    _, sd_error = errors(known, draws)
    assert sd_error < 0.12  # the temperature of a direction is at most 5 % off, and few draws count
