"""Timing that survives a busy machine.

Contestants take turns, only ratios within a turn are compared, and what is measured is processor
time on one core, which on an idle machine is wall time.
"""

import os
from collections.abc import Callable, Mapping
from statistics import median


def use_one_core() -> None:
    """Bind this process and its children to one core and BLAS to one thread.

    To be called before NumPy is imported: one chain has one core, so every contestant has.
    """
    for library in ("OPENBLAS", "OMP", "MKL"):
        os.environ[f"{library}_NUM_THREADS"] = "1"
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def take_turns(contestants: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list]:
    """Measure every contestant once per round.

    Parameters
    ----------
    contestants : mapping of str to callable
        Each does a fixed amount of work and returns the time per unit of work.
    rounds : int
        How often each has its turn, after one turn to warm up.
    """
    for run in contestants.values():
        run()
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, run in contestants.items():
            times[name].append(run())
    return times


def ratio(numerator: list[float], denominator: list[float]) -> float:
    """Median over the rounds of the ratio within a round."""
    return median(a / b for a, b in zip(numerator, denominator, strict=True))
