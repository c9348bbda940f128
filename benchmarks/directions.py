"""Directions with default settings, compared with the plain samplers of the papers.

``python -m benchmarks.directions`` samples the mean of 50,000 von Mises–Fisher rows in 20
dimensions, whose posterior is known, and a logistic regression whose coefficients are a unit vector
times a scale, with SGGMC and gSGNHT on minibatches of 100 rows: with default settings, and without
adapted coordinates and control variates. Times are processor time of one thread after tuning; the
reference of the second is a long run of GMC on all rows. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import logging
from typing import Any

import numpy as np
import pymc as pm

import pymc_geodesic as pg
from benchmarks.known_posteriors import directional
from benchmarks.timed_chain import timed_chain

N_ROWS, D = 50_000, 20
STEPS: dict[str, Any] = {"gSGNHT": pg.gSGNHT, "SGGMC": pg.SGGMC}
PLAIN: dict[str, Any] = {"metric": None, "control_variates": False}
BATCH_SIZE = 100


def regression() -> tuple[pm.Model, list[str]]:
    """Logistic regression on 20 covariates, coefficients as direction and scale."""
    rng = np.random.default_rng(1)
    X_rows = rng.standard_normal((N_ROWS, D))
    truth = rng.standard_normal(D)
    score = X_rows @ (truth / np.linalg.norm(truth))
    y_rows = (rng.random(N_ROWS) < 1.0 / (1.0 + np.exp(-score))).astype(float)
    with pm.Model() as model:
        X, y = pm.Data("X", X_rows), pm.Data("y", y_rows)
        u = pg.UniformSphere("u", shape=D)
        scale = pm.HalfNormal("scale", 2.0)
        pm.Bernoulli("outcome", logit_p=scale * (X @ u), observed=y)
    return model, ["X", "y"]


def compare(draws: np.ndarray, mean: np.ndarray, sd: np.ndarray) -> dict[str, float]:
    """Worst error of a mean in sds, and worst ratio of sds."""
    ratio = draws.std(axis=0) / sd
    return {
        "worst_mean_error": float(np.max(np.abs(draws.mean(axis=0) - mean) / sd)),
        "worst_sd_ratio": float(ratio[np.argmax(np.abs(np.log(ratio)))]),
    }


def mean_direction(options: argparse.Namespace) -> dict[str, Any]:
    """Compare with the von Mises–Fisher posterior."""
    known = directional(N_ROWS, D)
    result: dict[str, Any] = {"case": f"von Mises–Fisher mean, d={D}"}
    runs = {"plain": (pg.SGGMC, PLAIN)} | {name: (step, {}) for name, step in STEPS.items()}
    for name, (step, given) in runs.items():
        with known.model:
            make = step(batch_size=BATCH_SIZE, minibatch=known.containers, **given)
            found, draws = timed_chain(make, "mu", draws=options.draws, tune=options.tune)
        z = known.standardize(draws)
        result[name] = found | compare(z, np.zeros(z.shape[1]), np.ones(z.shape[1]))
    return result


def direction_in_regression(options: argparse.Namespace) -> dict[str, Any]:
    """Compare with the posterior moments of GMC."""
    model, rows = regression()
    result: dict[str, Any] = {"case": f"direction in a logistic regression, d={D}"}
    with model:
        found, exact = timed_chain(pg.GMC(), "u", draws=options.reference, tune=500)
    result["GMC"] = found
    mean, sd = exact.mean(axis=0), exact.std(axis=0)
    runs = {"plain": (pg.SGGMC, PLAIN)} | {name: (step, {}) for name, step in STEPS.items()}
    for name, (step, given) in runs.items():
        with model:
            make = step(batch_size=BATCH_SIZE, minibatch=rows, **given)
            found, draws = timed_chain(make, "u", draws=options.draws, tune=options.tune)
        result[name] = found | compare(draws, mean, sd)
    return result


def main() -> None:
    """Run the benchmark with the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--draws", type=int, default=4000)
    parser.add_argument("--tune", type=int, default=1000)
    parser.add_argument("--reference", type=int, default=2000, help="draws of GMC")
    options = parser.parse_args()
    logging.getLogger("pymc").setLevel(logging.ERROR)
    results = []
    for case in (mean_direction, direction_in_regression):
        result = case(options)
        for name in STEPS:
            result[name]["ratio"] = result[name]["ess_per_s"] / result["plain"]["ess_per_s"]
            print(
                f"{result['case']}, {name}: {result[name]['ess_per_s']:,.0f} effective draws per "
                f"second, {result[name]['ratio']:,.0f} times the plain sampler; error of a mean "
                f"{result[name]['worst_mean_error']:.2f} sds, sd ratio "
                f"{result[name]['worst_sd_ratio']:.3f}",
                flush=True,
            )
        results.append(result)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
