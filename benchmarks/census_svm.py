"""Support vector machine with sparse binary features and default settings.

``python -m benchmarks.census_svm`` simulates rows like the census income data of LIBSVM (a9a):
32,561 rows of 123 indicators, one for each of 14 attributes, with geometrically decreasing
frequencies, and 25 % positive labels. Four chains with default settings and minibatches of 100 rows
are compared with Gibbs sampling of weights and scales on all rows, which is exact (Polson, Scott
2011).
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import arviz as az
import numpy as np
import pymc as pm
from scipy import sparse

import pymc_geodesic as pg
from benchmarks.sampling_warnings import GENERAL_ADVICE, SamplingWarnings
from pymc_geodesic.kernels.hinge_augmentation import draw_scales

N_ROWS = 32_561
LEVELS = (5, 8, 5, 16, 5, 7, 14, 6, 5, 2, 3, 3, 3, 41)
"""Number of levels of each attribute; 123 in total."""

STEPS: dict[str, Any] = {"gSGNHT": pg.gSGNHT, "SGGMC": pg.SGGMC, "SSGNHT": pg.SSGNHT}


def census_rows(n_rows: int = N_ROWS) -> tuple[sparse.csr_matrix, np.ndarray]:
    """Simulate indicators of attributes, and labels."""
    rng = np.random.default_rng(1)
    first, columns = 0, []
    for levels in LEVELS:
        frequencies = 0.75 ** np.arange(levels)
        columns.append(first + rng.choice(levels, n_rows, p=frequencies / frequencies.sum()))
        first += levels
    indices = np.column_stack(columns)
    ones = np.ones(indices.size)
    pointers = np.arange(0, indices.size + 1, len(LEVELS))
    X = sparse.csr_matrix((ones, indices.ravel(), pointers), shape=(n_rows, sum(LEVELS)))
    score = X @ rng.normal(0.0, 0.7, size=X.shape[1])
    score -= np.quantile(score, 0.76)
    y = np.where(rng.random(n_rows) < 1.0 / (1.0 + np.exp(-2.0 * score)), 1.0, -1.0)
    return X, y


class WeightedProducts:
    """Xᵀ diag(w) X for rows with one indicator per attribute, from tables of pairs.

    Parameters
    ----------
    X : scipy.sparse.csr_matrix, shape (row, indicator)
    """

    def __init__(self, X: sparse.csr_matrix) -> None:
        self._codes = X.indices.reshape(X.shape[0], -1).T.astype(np.int64)
        self._size = X.shape[1]

    def __call__(self, weights: np.ndarray) -> np.ndarray:
        """Return the products, shape (indicator, indicator)."""
        size, total = self._size, np.zeros(self._size**2)
        for i, first in enumerate(self._codes):
            for second in self._codes[: i + 1]:
                total += np.bincount(first * size + second, weights, size**2)
        below = total.reshape(size, size)
        return below + below.T - np.diag(np.diag(below))


def gibbs_draws(
    X: sparse.csr_matrix, y: np.ndarray, *, draws: int, tune: int, seed: int
) -> np.ndarray:
    """Draw the weights of `linear_svm` with its default cost, margin and prior.

    Returns
    -------
    ndarray, shape (draws, indicator)
    """
    rng = np.random.default_rng(seed)
    products, transposed = WeightedProducts(X), X.T.tocsr()
    weights, kept = np.zeros(X.shape[1]), np.empty((draws, X.shape[1]))
    for draw in range(-tune, draws):
        scales = draw_scales(rng, 1.0 - y * (X @ weights), 1.0)
        precision = np.eye(X.shape[1]) + 0.25 * products(1.0 / scales)
        root = np.linalg.cholesky(precision)
        pull = transposed @ (y * (0.5 + 0.25 / scales))
        half = np.linalg.solve(root, pull) + rng.standard_normal(len(pull))
        weights = np.linalg.solve(root.T, half)
        if draw >= 0:
            kept[draw] = weights
    return kept


def sample(
    model: pm.Model, step: Any, *, chains: int, draws: int, tune: int
) -> tuple[dict[str, Any], np.ndarray]:
    """Sample; R-hat, effective size, warnings, and draws of shape (chains, draws, d)."""
    began = time.process_time()
    with SamplingWarnings() as caught, model:
        idata = pm.sample(
            draws=draws,
            tune=tune,
            chains=chains,
            cores=1,
            step=step,
            random_seed=1,
            progressbar=False,
        )
    seconds = time.process_time() - began
    (name,) = idata.posterior.data_vars
    values = idata.posterior[name].values.reshape(chains, draws, -1)
    stats = idata.sample_stats
    each = range(values.shape[2])
    return {
        "rhat": max(float(az.rhat(values[..., i])) for i in each),
        "ess": min(float(az.ess(values[..., i])) for i in each),
        "n_grad_per_draw": float(stats["n_grad"].values.mean()),
        "noise_ratio": float(stats["noise_ratio"].values.mean()) if "noise_ratio" in stats else 1.0,
        "seconds": seconds,
        "warnings": [m for m in caught.messages if not m.startswith(GENERAL_ADVICE)],
    }, values


def reference(
    X: sparse.csr_matrix, y: np.ndarray, draws: int, cache: Path | None
) -> tuple[np.ndarray, dict[str, Any]]:
    """Return draws of two Gibbs chains, cached in a file, and their effective sample size."""
    began = time.process_time()
    if cache is not None and cache.exists():
        exact = np.load(cache)
    else:
        chains = [gibbs_draws(X, y, draws=draws, tune=draws // 10, seed=seed) for seed in (1, 2)]
        exact = np.stack(chains)
        if cache is not None:
            np.save(cache, exact)
    each = range(exact.shape[2])
    squares = (exact - exact.mean(axis=(0, 1))) ** 2
    return exact, {
        "rhat": max(float(az.rhat(exact[..., i])) for i in each),
        "ess": min(float(az.ess(exact[..., i])) for i in each),
        "ess_of_squares": min(float(az.ess(squares[..., i], method="mean")) for i in each),
        "seconds": time.process_time() - began,
    }


def main() -> None:
    """Run the benchmark with the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", nargs="+", choices=list(STEPS), default=list(STEPS))
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--tune", type=int, default=1000)
    parser.add_argument("--chains", type=int, default=4)
    parser.add_argument("--reference", type=int, default=3000, help="draws of two Gibbs chains")
    parser.add_argument("--cache", type=Path, help="file for the draws of the reference")
    asked = parser.parse_args()
    X, y = census_rows()
    model = pg.svm.linear_svm(X, y)
    exact, found = reference(X, y, asked.reference, asked.cache)
    results = {"Gibbs": found}
    print(json.dumps({"sampler": "Gibbs"} | found), flush=True)
    mean, sd = exact.mean(axis=(0, 1)), exact.std(axis=(0, 1))
    for name in asked.steps:
        with model:
            step = STEPS[name](batch_size=100, minibatch=["X", "y"])
        found, values = sample(model, step, chains=asked.chains, draws=asked.draws, tune=asked.tune)
        ratio = values.std(axis=(0, 1)) / sd
        found["worst_mean_error"] = float(np.max(np.abs(values.mean(axis=(0, 1)) - mean) / sd))
        found["rms_mean_error"] = float(
            np.sqrt(np.mean(((values.mean(axis=(0, 1)) - mean) / sd) ** 2))
        )
        found["worst_sd_ratio"] = float(ratio[np.argmax(np.abs(np.log(ratio)))])
        found["median_sd_ratio"] = float(np.median(ratio))
        counts = np.asarray(X.sum(axis=0)).ravel()
        found["rows_of_worst_sd"] = int(counts[np.argmax(np.abs(np.log(ratio)))])
        found["sd_ratio_beyond_5_percent"] = int(np.sum(np.abs(np.log(ratio)) > np.log(1.05)))
        results[name] = found
        print(json.dumps({"sampler": name} | found), flush=True)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
