"""Posteriors of many rows whose mean and covariance are known, as plain PyMC models."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import numpy as np
import pymc as pm

from pymc_geodesic.distributions import VonMisesFisher
from pymc_geodesic.ops.bessel import mean_resultant_length

PRIOR_CONCENTRATION = 10.0
DATA_CONCENTRATION = 10.0
DEGREES_OF_FREEDOM = 4.0
QUADRATURE_NODES = 5
QUADRATURE_ROWS = 20_000


@dataclass(frozen=True)
class KnownPosterior:
    """A model with known posterior mean and covariance.

    Attributes
    ----------
    model : pymc.Model
        The model, with the data in containers.
    containers : list of str
        Names of the containers that share their rows.
    variable : str
        Name of the variable.
    mode : ndarray
        Posterior mode.
    scale : float
        Posterior standard deviation of a coordinate, the geometric mean over the axes.
    standardize : callable
        Maps draws of the variable, shape (n, d), to coordinates of mean 0 and covariance I.
    """

    model: pm.Model
    containers: list[str]
    variable: str
    mode: np.ndarray
    scale: float
    standardize: Callable[[np.ndarray], np.ndarray]


def directional_rows(n_rows: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the prior direction and rows drawn around another one."""
    truth = np.full(d, d**-0.5)
    x = pm.draw(VonMisesFisher.dist(truth, DATA_CONCENTRATION), draws=n_rows, random_seed=1)
    return np.eye(d)[0], x


def directional(n_rows: int, d: int, sufficient: bool = False) -> KnownPosterior:
    """Mean direction with a von Mises–Fisher prior: the posterior is von Mises–Fisher.

    With ``sufficient`` the likelihood depends on the sum of the rows, a sufficient statistic, only.
    """
    center, x = directional_rows(n_rows, d)
    total = DATA_CONCENTRATION * x.sum(axis=0)
    natural = PRIOR_CONCENTRATION * center + total
    concentration = float(np.linalg.norm(natural))
    mean = natural / concentration
    with pm.Model() as model:
        mu = VonMisesFisher("mu", center, PRIOR_CONCENTRATION)
        if sufficient:
            pm.Potential("likelihood", mu @ total)
        else:
            VonMisesFisher("x_obs", mu, DATA_CONCENTRATION, observed=pm.Data("x", x))
    tangents = np.linalg.qr(np.column_stack([mean, np.eye(d)[:, 1:]]))[0][:, 1:]
    scale = np.sqrt(mean_resultant_length(d, concentration) / concentration)
    return KnownPosterior(
        model, ["x"], "mu", mean, float(scale), lambda draws: draws @ tangents / scale
    )


def regression_rows(n_rows: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Return covariates with a constant column, and responses with heavy tails."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n_rows, d))
    X[:, 0] = 1.0
    y = X @ np.linspace(1.0, -1.0, d) + rng.standard_t(DEGREES_OF_FREEDOM, size=n_rows)
    return X, y


def log_density_at(X: np.ndarray, y: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Return the log-posterior of the regression at points, shape (m, d), up to a constant."""
    total = -0.5 * np.sum(points**2, axis=1)
    for start in range(0, len(y), QUADRATURE_ROWS):
        rows = slice(start, start + QUADRATURE_ROWS)
        residuals = y[rows] - points @ X[rows].T
        logs = np.log1p(residuals**2 / DEGREES_OF_FREEDOM)
        total -= 0.5 * (DEGREES_OF_FREEDOM + 1.0) * logs.sum(axis=1)
    return total


def mode_and_covariance(X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mode by Newton's method, and the inverse of the Hessian there."""
    d = X.shape[1]
    beta = np.linalg.lstsq(X, y, rcond=None)[0]
    for _ in range(20):
        residuals = y - X @ beta
        below = DEGREES_OF_FREEDOM + residuals**2
        slopes = (DEGREES_OF_FREEDOM + 1.0) * residuals / below
        curvatures = (DEGREES_OF_FREEDOM + 1.0) * (DEGREES_OF_FREEDOM - residuals**2) / below**2
        covariance = np.linalg.inv((X * curvatures[:, None]).T @ X + np.eye(d))
        beta = beta + covariance @ (X.T @ slopes - beta)
    return beta, covariance


def moments_by_quadrature(
    X: np.ndarray, y: np.ndarray, nodes: int = QUADRATURE_NODES
) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and covariance by Gauss–Hermite quadrature around the mode."""
    d = X.shape[1]
    mode, covariance = mode_and_covariance(X, y)
    root = np.linalg.cholesky(covariance)
    roots, weights = np.polynomial.hermite_e.hermegauss(nodes)
    grid = np.array(list(product(roots, repeat=d)))
    log_weights = np.log(np.array(list(product(weights, repeat=d)))).sum(axis=1)
    points = mode + grid @ root.T
    log_terms = log_weights + log_density_at(X, y, points) + 0.5 * np.sum(grid**2, axis=1)
    probabilities = np.exp(log_terms - log_terms.max())
    probabilities /= probabilities.sum()
    mean = probabilities @ points
    return mean, (points - mean).T @ ((points - mean) * probabilities[:, None])


def regression(n_rows: int, d: int) -> KnownPosterior:
    """Regression with Student-t errors: no sufficient statistic; moments by quadrature."""
    X, y = regression_rows(n_rows, d)
    mean, covariance = moments_by_quadrature(X, y)
    whiten = np.linalg.inv(np.linalg.cholesky(covariance))
    with pm.Model() as model:
        beta = pm.Normal("beta", 0.0, 1.0, shape=d)
        location = pm.Data("X", X) @ beta
        responses = pm.Data("y", y)
        pm.StudentT("y_obs", DEGREES_OF_FREEDOM, mu=location, sigma=1.0, observed=responses)
    scale = float(np.exp(0.5 * np.linalg.slogdet(covariance)[1] / d))
    return KnownPosterior(
        model, ["X", "y"], "beta", mean, scale, lambda draws: (draws - mean) @ whiten.T
    )
