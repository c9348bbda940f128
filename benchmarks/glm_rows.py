"""Regressions with many rows, as PyMC models and as plain NumPy, for Laplace approximations.

Twenty-eight covariates of scales from 0.01 to 100, correlated so that the condition number of their
correlations is about 800, or the rows of HIGGS, repeated and jittered by 0.01 of their
standard deviations, in any number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pymc as pm
from scipy.special import expit

import pymc_geodesic as pg
from pymc_geodesic.datasets.folder import read_arrays

D, CONDITION, DEGREES = 28, 800.0, 4.0
AT_ONCE = 50_000
"""Rows of which intermediate results are in memory at a time."""

Curve = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]
"""Linear predictors and outcomes → log-likelihood of each row, first and second derivative."""


@dataclass(frozen=True)
class Family:
    """An outcome given its linear predictor.

    Attributes
    ----------
    draw : callable
        Generator and linear predictors → outcomes.
    observe : callable
        Adds the outcome to the model in the context.
    curve : callable or None
        See `Curve`; None where it has kinks.
    """

    draw: Callable[[np.random.Generator, np.ndarray], np.ndarray]
    observe: Callable[..., object]
    curve: Curve | None


@dataclass(frozen=True)
class Rows:
    """Covariates, outcomes, and the scale of each covariate."""

    X: np.ndarray
    y: np.ndarray
    scales: np.ndarray


def _logistic(eta: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    p = expit(eta)
    return y * eta - np.logaddexp(0.0, eta), y - p, -p * (1.0 - p)


def _poisson(eta: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rate = np.exp(eta)
    return y * eta - rate, y - rate, -rate


def _student(eta: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    away = y - eta
    below = DEGREES + away**2
    slope = (DEGREES + 1.0) * away / below
    bend = (DEGREES + 1.0) * (away**2 - DEGREES) / below**2
    return -0.5 * (DEGREES + 1.0) * np.log(below), slope, bend


def _signs(rng: np.random.Generator, eta: np.ndarray) -> np.ndarray:
    return np.where(rng.random(eta.size) < expit(2.0 * eta), 1.0, -1.0)


FAMILIES: dict[str, Family] = {
    "logistic": Family(
        lambda rng, eta: (rng.random(eta.size) < expit(eta)).astype(float),
        lambda eta, y: pm.Bernoulli("outcome", logit_p=eta, observed=y),
        _logistic,
    ),
    "poisson": Family(
        lambda rng, eta: rng.poisson(np.exp(eta)).astype(float),
        lambda eta, y: pm.Poisson("outcome", pm.math.exp(eta), observed=y),
        _poisson,
    ),
    "student": Family(
        lambda rng, eta: eta + rng.standard_t(DEGREES, size=eta.size),
        lambda eta, y: pm.StudentT("outcome", nu=DEGREES, mu=eta, sigma=1.0, observed=y),
        _student,
    ),
    "hinge": Family(_signs, lambda eta, y: pg.Hinge("outcome", eta, observed=y), None),
}


def covariates(rng: np.random.Generator, n_rows: int, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Draw correlated covariates with their scales."""
    scales = np.geomspace(0.01, 100.0, D)
    rotation = np.linalg.qr(rng.standard_normal((D, D)))[0]
    root = rotation * np.sqrt(np.geomspace(1.0, 1.0 / CONDITION, D))
    covariance = root @ root.T
    root = root / np.sqrt(np.diag(covariance))[:, np.newaxis] * scales[:, np.newaxis]
    X = np.empty((n_rows, D), dtype)
    for first in range(0, n_rows, AT_ONCE):
        part = X[first : first + AT_ONCE]
        part[:] = rng.standard_normal(part.shape) @ root.T
    return X, scales


def higgs_rows(rng: np.random.Generator, n_rows: int, dtype: str, folder: str | None) -> Rows:
    """Repeat the rows of HIGGS with a little noise."""
    arrays = read_arrays(
        "higgs_small.npz", data_home=folder, origin="It holds rows of UCI's HIGGS data."
    )
    few, labels = arrays["X_sas"].astype(float), arrays["y_sas"]
    scales = few.std(axis=0)
    few = few - few.mean(axis=0)
    which = rng.permutation(np.resize(np.arange(len(few)), n_rows))
    X = few[which].astype(dtype)
    if n_rows > len(few):
        for first in range(0, n_rows, AT_ONCE):
            part = X[first : first + AT_ONCE]
            part += 0.01 * scales * rng.standard_normal(part.shape)
    return Rows(X, labels[which].astype(float), scales)


def make_rows(
    problem: str, n_rows: int, *, dtype: str = "float64", folder: str | None = None
) -> Rows:
    """Simulate the rows of a problem, a name of `FAMILIES` or ``"higgs"``."""
    rng = np.random.default_rng(1)
    if problem == "higgs":
        return higgs_rows(rng, n_rows, dtype, folder)
    X, scales = covariates(rng, n_rows, dtype)
    truth = 0.3 * rng.standard_normal(D) / np.sqrt(D) / scales
    eta = np.concatenate(
        [X[first : first + AT_ONCE] @ truth for first in range(0, n_rows, AT_ONCE)]
    )
    return Rows(X, FAMILIES[problem].draw(rng, eta), scales)


def family_of(problem: str) -> Family:
    """Family of a problem: HIGGS is a logistic regression."""
    return FAMILIES["logistic" if problem == "higgs" else problem]


def model_of(problem: str, rows: Rows) -> pm.Model:
    """PyMC model with the containers ``X`` and ``y`` and one vector ``b``."""
    with pm.Model() as model:
        X, y = pm.Data("X", rows.X), pm.Data("y", rows.y)
        b = pm.Normal("b", 0.0, 10.0 / rows.scales, shape=rows.X.shape[1])
        family_of(problem).observe(X @ b, y)
    return model


def sums(problem: str, rows: Rows, b: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """Log-posterior, gradient and Hessian at a point."""
    curve = family_of(problem).curve
    assert curve is not None
    precision = (rows.scales / 10.0) ** 2
    value = -0.5 * float(precision @ b**2)
    gradient, hessian = -precision * b, np.diag(-precision)
    for first in range(0, len(rows.y), AT_ONCE):
        X = rows.X[first : first + AT_ONCE].astype(float)
        logs, slope, bend = curve(X @ b, rows.y[first : first + AT_ONCE])
        value += float(logs.sum())
        gradient += X.T @ slope
        hessian += (X * bend[:, np.newaxis]).T @ X
    return value, gradient, hessian


def laplace(problem: str, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """Mode, by Newton's method with step halving, and minus the Hessian."""
    b = np.zeros(rows.X.shape[1])
    value, gradient, hessian = sums(problem, rows, b)
    for _ in range(50):
        step = -np.linalg.solve(hessian, gradient)
        gain = float(gradient @ step)
        length = 1.0
        while True:
            new = sums(problem, rows, b + length * step)
            if np.isfinite(new[0]) and new[0] >= value:
                break
            length *= 0.5
            if length < 1e-6:
                return b, -hessian
        b = b + length * step
        value, gradient, hessian = new
        if gain < 1e-8:
            break
    return b, -hessian


def importance(
    problem: str, rows: Rows, mode: np.ndarray, precision: np.ndarray, n_pairs: int
) -> tuple[np.ndarray, np.ndarray, float]:
    """Correct the Laplace approximation by importance sampling with antithetic pairs.

    Returns
    -------
    mean : ndarray
        Error of the Laplace approximation of the mean, in its standard deviations.
    sd : ndarray
        Ratio of the corrected sd to that of the approximation, without the noise of the draws.
    efficiency : float
        Effective sample size divided by the number of draws.
    """
    rng = np.random.default_rng(2)
    root = np.linalg.cholesky(np.linalg.inv(precision))
    z = rng.standard_normal((n_pairs, len(mode)))
    z = np.concatenate([z, -z])
    points = (mode + z @ root.T).T
    curve = family_of(problem).curve
    assert curve is not None
    logs = 0.5 * np.sum(z**2, axis=1) - 0.5 * ((rows.scales / 10.0) ** 2) @ points**2
    for first in range(0, len(rows.y), AT_ONCE // 10):
        part = slice(first, first + AT_ONCE // 10)
        logs += curve(rows.X[part].astype(float) @ points, rows.y[part, np.newaxis])[0].sum(axis=0)
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    in_units = z @ root.T / np.sqrt(np.sum(root**2, axis=1))
    mean = weights @ in_units
    sd_ratio = np.sqrt(weights @ in_units**2 - mean**2) / np.sqrt(np.mean(in_units**2, axis=0))
    return mean, sd_ratio, float(1.0 / np.sum(weights**2) / len(weights))
