"""Overhead of `pymc.sample` per draw beyond the compiled loop, in microseconds.

    python -m benchmarks.overhead [--draws 20000]

The minimum is measured by a step method that returns a constant point and constant statistics.
Times are processor times of one core: the difference between a long and a short run, which excludes
set-up, each the minimum over several rounds.
"""

from benchmarks.timing import use_one_core

use_one_core()

import argparse
import logging
import math
from time import process_time
from typing import Any

import pymc as pm
from pymc.step_methods.compound import BlockedStep

from benchmarks.models import kernel_of
from pymc_geodesic import SGGMC, SGLD, SSGNHT, gSGNHT

DIMENSION = 28
N_STEPS = 1
ROUNDS = 7
SHORT = 1000

logging.getLogger("pymc").setLevel(logging.ERROR)


class Standstill(BlockedStep):
    """A step method that returns the point unchanged."""

    name = "standstill"
    stats_dtypes_shapes = SGGMC.stats_dtypes_shapes

    def __init__(self, model: pm.Model) -> None:
        self.vars = model.continuous_value_vars
        self._stats = dict.fromkeys(self.stats_dtypes_shapes, 0) | {"warning": None}

    def setup_chain(self, rng: Any, tune: int, draws: int) -> None:
        """Do nothing."""

    def step(self, point: dict) -> tuple[dict, list]:
        """Return the point."""
        return point, [self._stats]


def time_of_sampling(step: BlockedStep, draws: int) -> float:
    begin = process_time()
    pm.sample(
        draws=draws,
        tune=0,
        chains=1,
        cores=1,
        step=step,
        progressbar=False,
        compute_convergence_checks=False,
        random_seed=1,
    )
    return process_time() - begin


def time_of_kernel(step: SGGMC, draws: int) -> float:
    run = kernel_of(step)
    minibatches = step.estimator.next_minibatches(N_STEPS)
    begin = process_time()
    for _ in range(draws):
        run(minibatches)
    return process_time() - begin


def main() -> list[str]:
    """Measure and return the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=20_000)
    draws = parser.parse_args().draws
    with pm.Model() as model:
        pm.Normal("w", shape=DIMENSION)
        set_values = {"step_size": 0.1, "friction": 1.0, "n_steps": N_STEPS}
        steps = {
            "constant point (minimum)": Standstill(model),
            "SGGMC": SGGMC(**set_values),
            "gSGNHT": gSGNHT(**set_values),
            "SGLD": SGLD(step_size=0.1, n_steps=N_STEPS),
            "SSGNHT": SSGNHT(step_size=0.1, diffusion=1.0, n_steps=N_STEPS),
        }
        long, short, kernel = (dict.fromkeys(steps, math.inf) for _ in range(3))
        for step in steps.values():
            time_of_sampling(step, 10)
        for _ in range(ROUNDS):
            for name, step in steps.items():
                long[name] = min(long[name], time_of_sampling(step, draws + SHORT))
                short[name] = min(short[name], time_of_sampling(step, SHORT))
                spent = 0.0 if isinstance(step, Standstill) else time_of_kernel(step, draws)
                kernel[name] = min(kernel[name], spent)
    lines = [
        f"| step, d = {DIMENSION}, one inner step | `pm.sample`, µs per draw | kernel | added |",
        "|---|---:|---:|---:|",
    ]
    for name in steps:
        total = (long[name] - short[name]) / draws * 1e6
        inner = kernel[name] / draws * 1e6
        lines.append(f"| {name} | {total:.1f} | {inner:.1f} | {total - inner:.1f} |")
    print("\n".join(lines), flush=True)
    return lines


if __name__ == "__main__":
    main()
