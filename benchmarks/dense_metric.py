"""Dense metrics with fewer draws than two per coordinate in the last window of the warm-up.

    python -m benchmarks.dense_metric [--sizes 50 100 200 400]

`GMC` with a dense metric, two chains of 1,000 draws after 1,000 of tuning. The metric is that of
the covariance of the draws, or of the inverse curvature at their center. Models: a logistic
regression on correlated covariates, normal variables of which 20 have a mixture of two components,
and a funnel, in which one curvature does not fit all values of the scale. The effective sample size
is that of the worst coordinate, *sd* the smallest and largest ratio of its standard deviation to
that of the exact posterior where it is known.
"""

from __future__ import annotations

import argparse
import logging
import time
from dataclasses import replace

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_geodesic as pg
from pymc_geodesic.adaptation import whitened_trajectories

N_ROWS, N_BIMODAL, DISTANCE = 2_000, 20, 1.5


def logistic(size: int) -> tuple[pm.Model, None]:
    """Create a logistic regression whose neighboring covariates have a correlation of 0.95."""
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(N_ROWS, size)) * np.sqrt(1 - 0.95**2)
    X = rng.normal(size=(N_ROWS, size))
    for j in range(1, size):
        X[:, j] = 0.95 * X[:, j - 1] + noise[:, j]
    probability = 1 / (1 + np.exp(-X @ rng.normal(0.0, 0.2, size)))
    with pm.Model() as model:
        beta = pm.Normal("x", shape=size)
        pm.Bernoulli("y", logit_p=X @ beta, observed=rng.random(N_ROWS) < probability)
    return model, None


def bimodal(size: int) -> tuple[pm.Model, np.ndarray]:
    """Create normal variables, the first of them mixtures of two components."""
    sd = np.concatenate([np.ones(N_BIMODAL), np.geomspace(0.01, 100, size - N_BIMODAL)])
    with pm.Model() as model:
        x = pm.Flat("x", shape=size)
        ends = [-0.5 * (x[:N_BIMODAL] - each) ** 2 for each in (-DISTANCE, DISTANCE)]
        pm.Potential("mixtures", pt.logaddexp(*ends).sum())
        pm.Potential("normal", pm.logp(pm.Normal.dist(0.0, sd[N_BIMODAL:]), x[N_BIMODAL:]).sum())
    sd[:N_BIMODAL] = np.sqrt(1.0 + DISTANCE**2)
    return model, sd


def funnel(size: int) -> tuple[pm.Model, np.ndarray]:
    """Create normal variables with a common log-normal scale."""
    with pm.Model() as model:
        log_variance = pm.Normal("v")
        pm.Normal("x", 0.0, pt.exp(0.5 * log_variance), shape=size)
    return model, np.full(size, np.exp(0.25))


MODELS = (logistic, bimodal, funnel)


def run(model: pm.Model, exact: np.ndarray | None, draws_per_coordinate: float) -> str:
    """Sample and return the last columns of the table."""
    given = whitened_trajectories.SETTINGS
    whitened_trajectories.SETTINGS = replace(given, draws_per_coordinate=draws_per_coordinate)
    start = time.process_time()
    with model:
        idata = pm.sample(
            chains=2, cores=1, step=pg.GMC(metric="dense"), random_seed=1, progressbar=False,
            compute_convergence_checks=False,
        )  # fmt: skip
    seconds = time.process_time() - start
    whitened_trajectories.SETTINGS = given
    ess, r_hat = float(az.ess(idata)["x"].min()), float(az.rhat(idata)["x"].max())
    gradients = float(idata.sample_stats["n_grad"].mean())
    ratios = "–"
    if exact is not None:
        ratio = idata.posterior["x"].std(("chain", "draw")).values / exact
        ratios = f"{ratio.min():.2f} to {ratio.max():.2f}"
    return f"{r_hat:.3f} | {ess:,.0f} | {gradients:.1f} | {ratios} | {seconds:.1f} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[50, 100, 200, 400])
    sizes = parser.parse_args().sizes
    logging.getLogger("pymc").setLevel(logging.ERROR)
    print("| model | coordinates | metric from | R-hat | ESS | grad/draw | sd | CPU s |")
    print("|---|---:|---|---:|---:|---:|---|---:|")
    for make in MODELS:
        for size in sizes:
            for metric, draws_per_coordinate in (("draws", 0.0), ("curvature", np.inf)):
                line = run(*make(size), draws_per_coordinate)
                print(f"| {make.__name__} | {size} | {metric} | {line}", flush=True)


if __name__ == "__main__":
    main()
