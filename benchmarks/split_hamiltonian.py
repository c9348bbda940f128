"""Leapfrog steps and split Hamiltonian of `GMC` on posteriors near to and far from normal.

``python -m benchmarks.split_hamiltonian`` prints one line for each posterior and integrator:
gradients and acceptance rate per draw, effective sample size of the worst coordinate per draw and
per gradient, of the values (bulk) and of their distance from the median, and divergences.
``leapfrog`` never splits, ``rule`` is the default, ``always`` splits for every posterior, and
``0.8`` does so with the target acceptance of leapfrog. Trajectories of ``quarter`` have the length
π/2 (1 ± 0.4), after which draws of N(0, I) are independent.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_geodesic as pg
from benchmarks.posteriordb import POSTERIORS, load
from pymc_geodesic.adaptation import split_hamiltonian, whitened_trajectories

CHAINS, TUNE, DRAWS = 4, 1000, 2000
TRAJECTORIES, SPLIT = whitened_trajectories.SETTINGS, split_hamiltonian.SETTINGS
INTEGRATORS = {
    "leapfrog": (TRAJECTORIES, replace(SPLIT, max_residual=-1.0, residual_of_exceptions=-1.0)),
    "rule": (TRAJECTORIES, SPLIT),
    "always": (TRAJECTORIES, replace(SPLIT, max_residual=math.inf)),
    "0.8": (replace(TRAJECTORIES, split_rejections=1.0), SPLIT),
    "quarter": (replace(TRAJECTORIES, length=0.5 * math.pi, length_jitter=0.4), SPLIT),
}


def student_t() -> None:
    """Ten independent coordinates with three degrees of freedom."""
    pm.StudentT("x", nu=3.0, mu=0.0, sigma=1.0, shape=10)


def funnel() -> None:
    """Log scale with standard deviation 1, and nine coordinates of that scale."""
    pm.Normal("x", 0.0, pt.exp(0.5 * pm.Normal("v", 0.0, 1.0)), shape=9)


def banana() -> None:
    """Three pairs of coordinates with a quadratic mean."""
    pm.Normal("b", 0.5 * pm.Normal("a", 0.0, 1.0, shape=3) ** 2, 0.3, shape=3)


def mixture() -> None:
    """Two normal components at a distance of four standard deviations."""
    x = pm.Flat("x", shape=5)
    away = np.array([2.0, 0.0, 0.0, 0.0, 0.0])
    parts = [-0.5 * pt.sum((x - sign * away) ** 2) for sign in (-1.0, 1.0)]
    pm.Potential("mixture", pt.logaddexp(*parts))


def wrong_scales() -> None:
    """Define a standard normal distribution, for a metric with scales from 0.5 to 2."""
    pm.Normal("x", 0.0, 1.0, shape=50)


def logistic_regression(d: int, n: int) -> None:
    """Regress on normal covariates."""
    rng = np.random.default_rng(3)
    design = 2.0 * rng.standard_normal((n, d)) / math.sqrt(d)
    probability = 1.0 / (1.0 + np.exp(-design @ rng.standard_normal(d)))
    beta = pm.Normal("beta", 0.0, 1.0, shape=d)
    y = (rng.uniform(size=n) < probability).astype(int)
    pm.Bernoulli("y", logit_p=pt.dot(design, beta), observed=y)


MODELS: dict[str, tuple[Callable[[], None], dict[str, Any]]] = {
    "student t": (student_t, {}),
    "funnel": (funnel, {}),
    "banana": (banana, {}),
    "mixture": (mixture, {}),
    "wrong scales": (wrong_scales, {"metric": np.geomspace(0.25, 4.0, 50)}),
    "logistic 100": (lambda: logistic_regression(100, 500), {}),
    "logistic 1000": (lambda: logistic_regression(1000, 2000), {}),
}


def model_of(name: str) -> tuple[pm.Model, dict[str, Any]]:
    """Model, and arguments of the step."""
    if name in POSTERIORS:
        return load(name).model, {}
    build, options = MODELS[name]
    with pm.Model() as model:
        build()
    return model, options


def measure(name: str, integrator: str, *, draws: int = DRAWS, tune: int = TUNE) -> str:
    """Sample, and return a line of the table."""
    model, options = model_of(name)
    whitened_trajectories.SETTINGS, split_hamiltonian.SETTINGS = INTEGRATORS[integrator]
    try:
        with model:
            idata = pm.sample(
                draws=draws,
                tune=tune,
                chains=CHAINS,
                cores=1,
                step=pg.GMC(**options),
                random_seed=1,
                progressbar=False,
                compute_convergence_checks=False,
            )
    finally:
        whitened_trajectories.SETTINGS, split_hamiltonian.SETTINGS = TRAJECTORIES, SPLIT
    posterior = idata.posterior.dataset[[each.name for each in model.free_RVs]]
    sizes = []
    for values in (posterior, abs(posterior - posterior.median(("chain", "draw")))):
        ess = az.ess(values)
        sizes.append(min(float(each.min()) for each in ess.data_vars.values()) / (CHAINS * draws))
    stats = idata.sample_stats
    n_grad = float(stats["n_grad"].mean())
    columns = [n_grad, float(stats["acceptance_rate"].mean()), *sizes]
    columns += [size / n_grad for size in sizes]
    numbers = " | ".join(f"{value:.2f}" for value in columns)
    return f"| {name} | {integrator} | {numbers} | {int(stats['diverging'].sum())} |"


def main() -> None:
    """Run the benchmark with the options of the command line."""
    names = [*MODELS, *POSTERIORS]
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", nargs="+", choices=names, default=names)
    parser.add_argument("--integrators", nargs="+", choices=list(INTEGRATORS), default=INTEGRATORS)
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--tune", type=int, default=TUNE)
    asked = parser.parse_args()
    print(
        "| posterior | integrator | grad/draw | acceptance | bulk | distance | bulk/grad ", end=""
    )
    print("| distance/grad | divergences |\n" + "|---" * 9 + "|", flush=True)
    for name in asked.models:
        for integrator in asked.integrators:
            print(measure(name, integrator, draws=asked.draws, tune=asked.tune), flush=True)


if __name__ == "__main__":
    main()
