"""Time of one inner step: SGGMC, its gradient alone, hand-written kernels and other libraries.

    python -m benchmarks.inner_loop [--rounds 21] [--skip-peers]

All run alternately on one core, and a ratio is the median over the rounds of the ratios within a
round, so that other load on the machine affects all of them.
"""

from benchmarks.timing import measure_alternately, ratio, use_one_core

use_one_core()

import argparse
from collections.abc import Callable
from statistics import median
from time import process_time

import numpy as np
from numba import njit

from benchmarks import blackjax_sgnht, hand_kernels, problems
from benchmarks.models import kernel_of, make_step
from benchmarks.peers.client import PeerProcess
from benchmarks.problems import Problem
from pymc_geodesic import SGGMC
from pymc_geodesic.runtime.gradient_functions import evaluate

TimedRun = Callable[[], float]

CASES: list[tuple[str, tuple, int]] = [
    ("svm", (1_000_000, 100), 5_000),
    ("svm", (1_000_000, 1000), 1_000),
    ("topics", (), 100),
    ("circle", (), 50_000),
]
"""Function of `benchmarks.problems`, its arguments, and steps per round."""


@njit
def evaluate_all(field, context, arguments, position, gradient):
    for argument in arguments:
        evaluate(field, position, argument, context, gradient)


def ours(step: SGGMC, n_steps: int, total: int) -> TimedRun:
    """Time the kernel as the step method calls it, ``n_steps`` inner steps per draw."""
    run = kernel_of(step)

    def timed() -> float:
        begin = process_time()
        for _ in range(total // n_steps):
            run(step.estimator.next_minibatches(n_steps))
        return (process_time() - begin) / total * 1e6

    return timed


def gradient_alone(step: SGGMC, n_steps: int, total: int) -> TimedRun:
    """Time the compiled gradient in a compiled loop."""
    field = step.estimator.logp_grad
    position, gradient = step.sampler.position.copy(), np.empty(step.product.size)

    def timed() -> float:
        begin = process_time()
        for _ in range(total // n_steps):
            arguments = step.estimator.next_minibatches(n_steps)
            evaluate_all(field.address, field.context, arguments, position, gradient)
        return (process_time() - begin) / total * 1e6

    return timed


def by_hand(problem: Problem, step: SGGMC, n_steps: int, total: int) -> TimedRun:
    """Time the hand-written kernel on the same blocks of rows."""
    kernel = hand_kernels.KERNELS[problem.kind]
    source = step.estimator.source
    arrays = tuple(source.arrays.values())
    rng = np.random.default_rng(1)
    x = problem.start.copy()
    v = rng.normal(size=x.shape)
    v -= x * np.sum(x * v, axis=-1, keepdims=True) if problem.kind != "svm" else 0.0

    def timed() -> float:
        begin = process_time()
        for _ in range(total // n_steps):
            starts = source.next_starts(n_steps)
            kernel(
                rng, arrays, starts, problem.batch_size, x, v, problem.step_size, problem.friction
            )
        return (process_time() - begin) / total * 1e6

    return timed


def compare(
    name: str, arguments: tuple, total: int, rounds: int, peers: PeerProcess | None
) -> list[str]:
    """Run one problem and return its lines of the table."""
    problem = getattr(problems, name)(*arguments)
    step = make_step(problem, n_steps=10)
    runs: dict[str, TimedRun] = {}
    for n_steps in (10, 100):
        runs[f"ours, L={n_steps}"] = ours(step, n_steps, total)
        runs[f"hand, L={n_steps}"] = by_hand(problem, step, n_steps, total)
        runs[f"gradient, L={n_steps}"] = gradient_alone(step, n_steps, total)
    runs["BlackJAX SGNHT"] = blackjax_sgnht.make_timed_run(problem, total)
    if problem.arrays:
        runs["BlackJAX SGNHT, our blocks"] = blackjax_sgnht.make_timed_run(
            problem, total, blocks=True
        )
    if peers is not None:
        if problem.arrays:
            arguments = (*arguments, "float32")
        for sampler, run in peers.prepare(name, *arguments, steps=total).items():
            runs[f"SGMCMCJax {sampler.upper()}, float32"] = run
    times = measure_alternately(runs, rounds)
    assert np.all(np.isfinite(step.sampler.position)), "the kernel diverged: the time is not valid"
    lines = [f"| **{problem.title}** | | | |"]
    own = [name for name in runs if name.startswith("ours")]
    for rival, rival_times in times.items():
        ratios = " | ".join(
            f"{ratio(times[name], rival_times):.2f}" if _same_length(name, rival) else ""
            for name in own
        )
        lines.append(f"| {rival} | {median(rival_times):.2f} | {ratios} |")
    return lines


def _same_length(own: str, rival: str) -> bool:
    return "L=" not in rival or own.split("L=")[1] == rival.split("L=")[1]


def main() -> list[str]:
    """Run all cases and return the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--skip-peers", action="store_true", help="do not measure SGMCMCJax")
    options = parser.parse_args()
    peers, remark = None, "SGMCMCJax was not measured."
    if not options.skip_peers:
        try:
            peers = PeerProcess()
        except RuntimeError as reason:
            remark = f"SGMCMCJax was not measured: {reason}."
    lines = [
        "| sampler | µs per step | our time at L=10 ÷ its time | at L=100 |",
        "|---|---:|---:|---:|",
    ]
    for name, arguments, total in CASES:
        lines += compare(name, arguments, total, options.rounds, peers)
    if peers is None:
        lines += ["", remark]
    print("\n".join(lines), flush=True)
    if peers is not None:
        peers.close()
    return lines


if __name__ == "__main__":
    main()
