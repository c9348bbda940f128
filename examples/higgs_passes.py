"""Passes over all rows of `higgs_from_disk`: gradients, Newton's method, and the Gibbs sampler."""

import time

import numpy as np
from higgs_traces import Trace
from svm_baselines import auxiliary_precisions

from pymc_geodesic.datasets import RowBlocks

COST, PRIOR_SCALE = 1.0, 1.0
BANDWIDTHS = (2.0, 1.0, 0.5, 0.2, 0.1, 0.05, 0.03, 0.02, 0.02)
"""Smoothing widths of the hinge loss in successive steps of Newton's method."""
HALVINGS = 10


def slope(blocks: RowBlocks, w: np.ndarray) -> np.ndarray:
    """Sum over all rows of the gradient of log ψ at w."""
    total, single = np.zeros(w.size), w.astype("float32")
    for features, signs in blocks:
        for X, y in zip(features.pieces(), signs.pieces(), strict=True):
            total += np.where(y * (X @ single) < 1.0, y, 0).astype("float32") @ X
    return COST * total


def energy(blocks: RowBlocks, w: np.ndarray) -> float:
    """−log posterior at w, from all rows."""
    total, single = 0.5 * float(np.sum((w / PRIOR_SCALE) ** 2)), w.astype("float32")
    for features, signs in blocks:
        for X, y in zip(features.pieces(), signs.pieces(), strict=True):
            total += COST * float(np.maximum(0.0, 1.0 - y * (X @ single)).sum(dtype=float))
    return total


def read_all(blocks: RowBlocks) -> None:
    """Read all rows, so that the system has them in its cache when the clock starts."""
    for features, signs in blocks:
        for _ in zip(features.pieces(), signs.pieces(), strict=True):
            pass


def gibbs_sweep(rng: np.random.Generator, blocks: RowBlocks, w: np.ndarray) -> np.ndarray:
    """Draw w after one sweep of the Gibbs sampler over all rows, read piece by piece."""
    precision, linear = np.eye(w.size) / PRIOR_SCALE**2, np.zeros(w.size)
    for features, signs in blocks:
        for X, y in zip(features.pieces(), signs.pieces(), strict=True):
            X, y = X.astype(float), y.astype(float)
            auxiliary_precisions(rng, X, y, w, COST, 1.0, precision, linear)
    root = np.linalg.cholesky(precision)
    mean = np.linalg.solve(root.T, np.linalg.solve(root, linear))
    return mean + np.linalg.solve(root.T, rng.standard_normal(w.size))


def run_gibbs(blocks: RowBlocks, sweeps: int, d: int) -> Trace:
    """Sweeps from w = 0; nothing is compiled within the time."""
    rng = np.random.default_rng(1)
    auxiliary_precisions(
        rng, np.ones((8, d)), np.ones(8), np.zeros(d), COST, 1.0, np.eye(d), np.zeros(d)
    )
    w, draws, seconds = np.zeros(d), [], []
    read_all(blocks)
    begin = time.perf_counter()
    for _ in range(sweeps):
        w = gibbs_sweep(rng, blocks, w)
        draws.append(w)
        seconds.append(time.perf_counter() - begin)
    return Trace(np.array(seconds), np.array(draws), np.ones(sweeps), 0)


def posterior_mode(blocks: RowBlocks, n_features: int) -> tuple[np.ndarray, np.ndarray]:
    """Return mode and curvature of −log posterior by Newton's method on all rows.

    The curvature is estimated from rows near the kink: Σ x xᵀ 1[|1 − y x·w| < b] / (2b). A step is
    halved until the energy decreases.
    """
    w = np.zeros(n_features)
    lowest = energy(blocks, w)
    for width in BANDWIDTHS:
        gradient = slope(blocks, w) - w / PRIOR_SCALE**2
        curvature = np.eye(w.size) / PRIOR_SCALE**2
        for features, signs in blocks:
            for X, y in zip(features.pieces(), signs.pieces(), strict=True):
                near = X[np.abs(1.0 - y * (X @ w)) < width].astype(float)
                curvature += COST * near.T @ near / (2.0 * width)
        step = np.linalg.solve(curvature, gradient)
        for _ in range(HALVINGS):
            reached = energy(blocks, w + step)
            if reached < lowest:
                w, lowest = w + step, reached
                break
            step = 0.5 * step
    return w, curvature
