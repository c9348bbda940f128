"""A support vector machine on sparse binary rows, with default settings.

``python -m benchmarks.census_svm`` simulates rows like the census income data of LIBSVM (a9a):
32,561 rows of 123 indicators, of which each row has one of every one of 14 attributes, with
frequencies that fall geometrically, and labels of which a quarter are positive. It is a simulation:
the data themselves are not needed. Four chains with nothing set but minibatches of 100 rows, beside
SubgradientHMC on all rows, which corrects each step.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import arviz as az
import numpy as np
import pymc as pm
from scipy import sparse

import pymc_geodesic as pg
from benchmarks.complaints import GENERAL_ADVICE, Complaints

N_ROWS = 32_561
LEVELS = (5, 8, 5, 16, 5, 7, 14, 6, 5, 2, 3, 3, 3, 41)
"""Of each attribute; 123 together."""

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


def sample(
    model: pm.Model, step: Any, *, chains: int, draws: int, tune: int
) -> tuple[dict[str, Any], np.ndarray]:
    """Sample; R-hat, effective size, warnings, and draws of shape (chains, draws, d)."""
    began = time.process_time()
    with Complaints() as complaints, model:
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
        "warnings": [m for m in complaints.messages if not m.startswith(GENERAL_ADVICE)],
    }, values


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", nargs="+", choices=list(STEPS), default=list(STEPS))
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--tune", type=int, default=1000)
    parser.add_argument("--chains", type=int, default=4)
    parser.add_argument("--reference", type=int, default=1000, help="draws of SubgradientHMC")
    asked = parser.parse_args()
    X, y = census_rows()
    model = pg.models.linear_svm(X, y)
    with model:
        step = pg.SubgradientHMC()
    found, exact = sample(model, step, chains=2, draws=asked.reference, tune=600)
    results = {"SubgradientHMC": found}
    print(json.dumps({"sampler": "SubgradientHMC"} | found), flush=True)
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
        results[name] = found
        print(json.dumps({"sampler": name} | found), flush=True)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
