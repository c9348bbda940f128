"""Time of one inner step of SSGNHT on a Bayesian support vector machine with dense rows.

    python -m benchmarks.thermostat_step [--rows 1000000] [--rounds 15]

SSGNHT as `pm.sample` calls it is compared with a hand-written Euler scheme in Numba on the same
blocks of rows, and with BlackJAX's SGNHT in one jitted `lax.scan`, with random rows and with
blocks.
"""

from benchmarks.timing import measure_alternately, ratio, use_one_core

use_one_core()

import argparse
from collections.abc import Callable
from statistics import median
from time import process_time

import numpy as np

from benchmarks import blackjax_sgnht, hand_kernels, problems
from benchmarks.models import kernel_of, svm_model
from benchmarks.problems import Problem
from pymc_geodesic import SSGNHT

CASES = ((100, 5000), (1000, 1000))
"""Rows of a minibatch, and steps per round."""

LENGTHS = (10, 100)
"""Inner steps of a draw."""


def make_step(problem: Problem) -> SSGNHT:
    """Return the step method at the problem's start, with fixed parameters."""
    with svm_model(problem):
        step = SSGNHT(
            step_size=problem.step_size,
            diffusion=problem.friction,
            batch_size=problem.batch_size,
            minibatch=["X", "y"],
        )
    step.setup_chain(np.random.default_rng(1), tune=0, draws=1)
    step.step({"w": problem.start})
    return step


def ours(step: SSGNHT, n_steps: int, total: int) -> Callable[[], float]:
    """Time the kernel as the step method calls it, ``n_steps`` inner steps per draw."""
    run = kernel_of(step)

    def timed() -> float:
        begin = process_time()
        for _ in range(total // n_steps):
            run(step.estimator.next_minibatches(n_steps))
        return (process_time() - begin) / total * 1e6

    return timed


def by_hand(problem: Problem, step: SSGNHT, n_steps: int, total: int) -> Callable[[], float]:
    """Time the hand-written kernel on the same blocks of rows."""
    source = step.estimator.source
    arrays = source.arrays["X"], source.arrays["y"]
    rng = np.random.default_rng(1)
    w, v = problem.start.copy(), rng.normal(size=problem.start.shape)
    thermostat = problem.friction

    def timed() -> float:
        nonlocal thermostat
        begin = process_time()
        for _ in range(total // n_steps):
            thermostat = hand_kernels.svm_thermostat(
                rng, arrays, source.next_starts(n_steps), problem.batch_size, w, v, thermostat,
                problem.step_size, problem.friction,
            )  # fmt: skip
        assert np.isfinite(w).all()
        return (process_time() - begin) / total * 1e6

    return timed


def compare(problem: Problem, total: int, rounds: int) -> list[str]:
    """Run one problem and return its lines of the table."""
    step = make_step(problem)
    runs = {}
    for n_steps in LENGTHS:
        runs[f"SSGNHT, L={n_steps}"] = ours(step, n_steps, total)
        runs[f"hand, L={n_steps}"] = by_hand(problem, step, n_steps, total)
    runs["BlackJAX, random rows"] = blackjax_sgnht.make_timed_run(problem, total)
    runs["BlackJAX, blocks"] = blackjax_sgnht.make_timed_run(problem, total, blocks=True)
    times = measure_alternately(runs, rounds)
    assert np.isfinite(step.sampler.position).all(), "SSGNHT diverged: the time is not valid"
    lines = [f"| **{problem.title}** | | | |"]
    for rival, rival_times in times.items():
        ratios = []
        for n_steps in LENGTHS:
            same = "L=" not in rival or rival.endswith(f"L={n_steps}")
            own = times[f"SSGNHT, L={n_steps}"]
            ratios.append(f"{ratio(rival_times, own):.2f}" if same else "")
        lines.append(f"| {rival} | {median(rival_times):.2f} | {' | '.join(ratios)} |")
    return lines


def main() -> list[str]:
    """Run all cases and return the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    lines = [
        "| sampler | µs per step | its time ÷ ours at L=10 | at L=100 |",
        "|---|---:|---:|---:|",
    ]
    for batch_size, total in CASES:
        lines += compare(problems.svm(options.rows, batch_size), total, options.rounds)
    print("\n".join(lines), flush=True)
    return lines


if __name__ == "__main__":
    main()
