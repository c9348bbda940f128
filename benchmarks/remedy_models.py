"""Small models with known posteriors, for the benchmark of the remedies of warnings."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr

import pymc_geodesic as pg
from benchmarks import detectors


@dataclass(frozen=True, eq=False)
class Problem:
    """A model with a known posterior.

    Attributes
    ----------
    model : pymc.Model
    rows : list of str
        Data containers with a row for each observation.
    standardize : callable
        Posterior → array, shape (chain, draw, ...), with mean 0 and standard deviation 1.
    start : dict
        Initial values near the posterior mean.
    """

    model: pm.Model
    rows: list[str]
    standardize: Callable[[xr.Dataset], np.ndarray]
    start: dict[str, Any] = field(default_factory=dict)


def _of_known(known: detectors.Known, **start: Any) -> Problem:
    name = known.variable
    return Problem(known.model, known.rows, lambda p: known.standardize(p[name].values), start)


def _of_reference(
    model: pm.Model,
    rows: list[str],
    quantity: Callable[[xr.Dataset], np.ndarray],
    step: Callable[[], Any] = pm.NUTS,
) -> Problem:
    """Standardize by the means and standard deviations of a long run of NUTS, or another step."""
    with model:
        long = pm.sample(
            3000, tune=1000, chains=2, cores=1, random_seed=5, progressbar=False, step=step(),
            compute_convergence_checks=False,
        ).posterior  # fmt: skip
    draws = quantity(long)
    mean, sd = draws.mean(axis=(0, 1)), draws.std(axis=(0, 1))
    start = {rv.name: long[rv.name].mean(("chain", "draw")).values for rv in model.free_RVs}
    return Problem(model, rows, lambda p: (quantity(p) - mean) / sd, start)


@functools.cache
def regression() -> Problem:
    """Linear regression with 5,000 rows and 6 coefficients."""
    known = detectors.regression()
    X, y = (known.model[name].get_value() for name in known.rows)
    return _of_known(known, b=np.linalg.lstsq(X, y)[0])


@functools.cache
def logistic() -> Problem:
    """Logistic regression with 5,000 rows and 6 coefficients."""
    return _of_known(detectors.logistic())


@functools.cache
def direction() -> Problem:
    """Mean direction on the sphere in five dimensions, with 5,000 rows."""
    return _of_known(detectors.direction())


def _normal_means(y: np.ndarray, total_size: int | None = None) -> Problem:
    """Three means with unit variance, by `pymc.Minibatch` where there is a total size."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 10.0, shape=3)
        if total_size is None:
            pm.Normal("y_obs", mu, 1.0, observed=pm.Data("y", y))
        else:
            pm.Normal("y_obs", mu, 1.0, observed=pm.Minibatch(y, batch_size=100),
                      total_size=total_size)  # fmt: skip
    precision = len(y) + 0.01
    mean = y.sum(axis=0) / precision
    return Problem(model, ["y"], lambda p: (p["mu"].values - mean) * precision**0.5, {"mu": mean})


def _means_rows(n: int = 10_000) -> np.ndarray:
    return np.random.default_rng(1).normal(1.0, 1.0, size=(n, 3))


@functools.cache
def wrong_total_size() -> Problem:
    """10,000 rows that count as 500."""
    return _normal_means(_means_rows(), 500)


@functools.cache
def right_total_size() -> Problem:
    """10,000 rows by `pymc.Minibatch`."""
    return _normal_means(_means_rows(), 10_000)


@functools.cache
def full_data() -> Problem:
    """Return the same model with `pymc.Data`."""
    return _normal_means(_means_rows())


@functools.cache
def sorted_rows() -> Problem:
    """20,000 rows sorted by their values."""
    return _normal_means(np.sort(_means_rows(20_000), axis=0))


@functools.cache
def rare_indicators() -> Problem:
    """Hinge loss of 5,000 rows with indicators, each in 2 to 2,000 rows."""
    rng = np.random.default_rng(1)
    n, counts = 5_000, np.repeat([2, 5, 20, 80, 500, 2000], 2)
    x = np.zeros((n, counts.size))
    for j, count in enumerate(counts):
        x[rng.choice(n, count, replace=False), j] = 1.0
    score = -0.5 + x @ rng.normal(size=counts.size)
    y = np.where(rng.random(n) < 1.0 / (1.0 + np.exp(-score)), 1, -1)
    with pm.Model() as model:
        w = pm.Normal("w", shape=counts.size)
        score = pm.Normal("a", 0.0, 2.0) + pm.Data("x", x) @ w
        pm.Potential("loss", -2.0 * pm.math.maximum(0.0, 1.0 - pm.Data("y", y) * score))
    return _of_reference(model, ["x", "y"], lambda p: p["w"].values, pg.GMC)


@functools.cache
def one_wide() -> Problem:
    """Twenty independent normal variables, one of them a hundred times as wide."""
    sd = np.ones(20)
    sd[2] = 100.0
    with pm.Model() as model:
        pm.Normal("w", 0.0, sd)
    return Problem(model, [], lambda p: p["w"].values / sd)


def _funnel(*, is_centered: bool) -> Problem:
    """V ~ N(0, 1.5) and nine x ~ N(0, e^v), without data; only v is compared."""
    with pm.Model() as model:
        v = pm.Normal("v", 0.0, 1.5)
        if is_centered:
            pm.Normal("x", 0.0, pm.math.exp(v), shape=9)
        else:
            pm.Deterministic("x", pm.Normal("z", shape=9) * pm.math.exp(v))
    return Problem(model, [], lambda p: p["v"].values[..., np.newaxis] / 1.5)


@functools.cache
def funnel() -> Problem:
    """Funnel, centered."""
    return _funnel(is_centered=True)


@functools.cache
def funnel_as_product() -> Problem:
    """Funnel, non-centered."""
    return _funnel(is_centered=False)


@functools.cache
def local_latents() -> Problem:
    """z_i ~ N(m, 1) for each of 120 rows, y_i ~ N(z_i, 1); m is compared."""
    y = np.random.default_rng(3).normal(0.7, 2.0**0.5, size=120)
    with pm.Model() as model:
        m = pm.Normal("m", 0.0, 10.0)
        z = pm.Normal("z", m, 1.0, shape=120)
        pm.Normal("x", z, 1.0, observed=pm.Data("y", y))
    precision = 60.0 + 0.01
    mean = 0.5 * y.sum() / precision

    def standardize(posterior: xr.Dataset) -> np.ndarray:
        return (posterior["m"].values[..., np.newaxis] - mean) * precision**0.5

    return Problem(model, ["y"], standardize, {"m": mean})


@functools.cache
def proportions() -> Problem:
    """Proportions of six categories, whose posterior is a Dirichlet distribution."""
    rng = np.random.default_rng(3)
    counts = rng.multinomial(20, rng.dirichlet(np.full(6, 2.0)), size=200)
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones(6))
        pm.Multinomial("y", n=20, p=p, observed=pm.Data("x", counts))
    a = 1.0 + counts.sum(axis=0)
    mean = a / a.sum()
    sd = np.sqrt(mean * (1.0 - mean) / (a.sum() + 1.0))
    return Problem(model, ["x"], lambda posterior: (posterior["p"].values - mean) / sd)


@functools.cache
def orthogonal_matrix() -> Problem:
    """Orthogonal 2 × 2 matrix with equal densities for both signs of the determinant."""
    with pm.Model() as model:
        x = pg.UniformStiefel("x", shape=(2, 2))
        pm.Potential("data", 2.0 * x[0, 0])

    def determinant(posterior: xr.Dataset) -> np.ndarray:
        return np.linalg.det(posterior["x"].values)[..., np.newaxis]

    return Problem(model, [], determinant)
