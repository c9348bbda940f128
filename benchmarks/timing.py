"""Timing that is robust to other load on the machine.

Functions are called alternately, ratios are computed within a round, and times are processor times
on one core, which on an idle machine are wall times.
"""

import os
from collections.abc import Callable, Mapping
from statistics import median


def use_one_core() -> None:
    """Bind this process and its children to one core and BLAS to one thread.

    Call it before NumPy is imported.
    """
    for library in ("OPENBLAS", "OMP", "MKL"):
        os.environ[f"{library}_NUM_THREADS"] = "1"
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def measure_alternately(
    functions: Mapping[str, Callable[[], float]], rounds: int
) -> dict[str, list]:
    """Measure every function once per round.

    Parameters
    ----------
    functions : mapping of str to callable
        Each does a fixed amount of work and returns the time per unit of work.
    rounds : int
        Number of rounds, after one warm-up round.
    """
    for run in functions.values():
        run()
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, run in functions.items():
            times[name].append(run())
    return times


def ratio(numerator: list[float], denominator: list[float]) -> float:
    """Median over the rounds of the ratio within a round."""
    return median(a / b for a, b in zip(numerator, denominator, strict=True))
