"""Overhead of `CheckpointTrace` in processor time and wall time.

    python -m benchmarks.checkpoint_overhead [small transformed large] [--pairs 8]

Runs with and without ``trace=CheckpointTrace(path, every=5.0)`` alternate, and ratios are those of
consecutive runs. Times are those of `pymc.sample`, including the final reading of the draws. On a
busy machine checkpoints are written more often than every five seconds of processor time, so that
ratios are overestimated.
"""

from benchmarks.timing import use_one_core

use_one_core()

import argparse
import logging
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pymc as pm

import pymc_geodesic as pg

EVERY = 5.0
QUIET: dict[str, Any] = {
    "progressbar": False,
    "quiet": True,
    "compute_convergence_checks": False,
    "chains": 1,
    "cores": 1,
    "random_seed": 1,
}

logging.getLogger("pymc").setLevel(logging.ERROR)


def small() -> tuple[pm.Model, Any, dict[str, int]]:
    """Make a model with fast draws: 28 normal variables, one inner step."""
    with pm.Model() as model:
        pm.Normal("w", shape=28)
        step = pg.SGGMC(step_size=0.1, friction=1.0, n_steps=1)
    return model, step, {"tune": 0, "draws": 300_000}


def transformed() -> tuple[pm.Model, Any, dict[str, int]]:
    """Make the same model with transformed variables, which are computed from the point."""
    with pm.Model() as model:
        pm.LogNormal("w", shape=28)
        step = pg.SGGMC(step_size=0.1, friction=1.0, n_steps=1)
    return model, step, {"tune": 0, "draws": 300_000}


def large() -> tuple[pm.Model, Any, dict[str, int]]:
    """Make a logistic regression with 200,000 rows, whose order is part of each checkpoint."""
    rng = np.random.default_rng(1)
    covariates = rng.normal(size=(200_000, 28))
    labels = rng.random(200_000) < 1.0 / (1.0 + np.exp(-covariates @ rng.normal(size=28)))
    with pm.Model() as model:
        x, y = pm.Data("x", covariates), pm.Data("y", labels.astype(float))
        w = pm.Normal("w", 0.0, 5.0, shape=28)
        pm.Bernoulli("label", logit_p=x @ w, observed=y)
        step = pg.SGGMC(batch_size=1000, minibatch=["x", "y"])
    return model, step, {"tune": 1000, "draws": 100_000}


MODELS = {each.__name__: each for each in (small, transformed, large)}


def measured(run: Callable[[], object]) -> np.ndarray:
    """Return processor time and wall time of a call."""
    begin = time.process_time(), time.perf_counter()
    run()
    return np.array([time.process_time(), time.perf_counter()]) - begin


def compare(make: Callable[[], tuple[pm.Model, Any, dict[str, int]]], n_pairs: int) -> str:
    """Sample with and without checkpoints alternately; return a row of the table."""
    model, step, length = make()
    folder = Path(tempfile.mkdtemp())
    n_checkpoints = []

    def sample(**arguments: Any) -> None:
        with model:
            pm.sample(step=step, **QUIET, **(length | arguments))

    def with_checkpoints(**arguments: Any) -> None:
        sample(trace=pg.CheckpointTrace(folder / "run", every=EVERY), **arguments)
        n_checkpoints.append(len(list(folder.glob("run/chain-0/draws-*.npz"))))
        shutil.rmtree(folder / "run")

    for each in (sample, with_checkpoints):
        each(draws=10)
    n_checkpoints.clear()
    pairs = []
    for turn in range(n_pairs):
        order = (sample, with_checkpoints) if turn % 2 == 0 else (with_checkpoints, sample)
        times = {each.__name__: measured(each) for each in order}
        pairs.append([times["sample"], times["with_checkpoints"]])
    shutil.rmtree(folder)
    seconds = np.array(pairs)
    ratios = np.log(seconds[:, 1] / seconds[:, 0])
    mean, error = ratios.mean(axis=0), ratios.std(axis=0, ddof=1) / np.sqrt(n_pairs)
    added = [
        f"{100 * np.expm1(m):+.1f} ± {100 * e:.1f} %" for m, e in zip(mean, error, strict=True)
    ]
    n = sum(length.values())
    rate = n / np.median(seconds[:, 0, 0])
    return (
        f"| {make.__name__} | {n:,} | {rate:,.0f} | {np.mean(n_checkpoints):.1f} | {added[0]} | "
        f"{added[1]} |"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--pairs", type=int, default=8)
    given = parser.parse_args()
    print(
        "| model | draws | draws per processor second | checkpoints | processor time | wall time |"
    )
    print("|---|---:|---:|---:|---:|---:|")
    for name in given.models:
        print(compare(MODELS[name], given.pairs), flush=True)


if __name__ == "__main__":
    main()
