"""Visits of chains to shards: schedule, execution and progress bars."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from pymc_geodesic.distributed.workers import WorkerPool

VISIT_LENGTH = 50
"""Draws per visit by default, if the draws suffice for `MIN_CYCLES`."""

MIN_CYCLES = 2
"""Visits to each shard, at least."""

FIRST_VISIT = 0.6
"""Fraction of warm-up spent in one shard: initial adaptation runs on a subsample of its rows."""


class Visit(NamedTuple):
    """Consecutive draws of a chain in one shard.

    Attributes
    ----------
    shard : int
    number : int
        Position among the visits of the chain, from 0.
    n_draws : int
    ends_tuning : bool
        Whether this is the last visit of warm-up.
    """

    shard: int
    number: int
    n_draws: int
    ends_tuning: bool


class VisitDraws(NamedTuple):
    """Draws of one visit.

    Attributes
    ----------
    values : dict of str to ndarray
        By name of the value variable, shape (draw, ...).
    stats : dict of str to ndarray
    warnings : list
        Warnings of the step method.
    """

    values: dict[str, np.ndarray]
    stats: dict[str, np.ndarray]
    warnings: list[Any]


def default_visit_length(draws: int, n_shards: int) -> int:
    """Draws per visit such that all shards are visited equally often, at least twice.

    Examples
    --------
    >>> from pymc_geodesic.distributed.visits import default_visit_length
    >>> [default_visit_length(draws, n) for draws, n in ((1000, 4), (1000, 64), (8, 8))]
    [50, 8, 1]
    """
    cycles = max(MIN_CYCLES, round(draws / (n_shards * VISIT_LENGTH)))
    return max(1, math.ceil(draws / (n_shards * cycles)))


def validate_probabilities(given: Sequence[float] | None, n_shards: int) -> np.ndarray | None:
    """Validate and normalize the probabilities with which shards are visited.

    Raises
    ------
    ValueError
        If there is not one positive number per shard.
    """
    if given is None:
        return None
    values = np.asarray(given, dtype=float)
    if values.shape != (n_shards,) or not (np.isfinite(values).all() and (values > 0).all()):
        raise ValueError(
            f"probabilities= needs a positive number for each of the {n_shards} shards, got {given}"
        )
    return values / values.sum()


class VisitSchedule:
    """Order and length of the visits of all chains.

    In each cycle every shard is visited once, in a random order. Chains start at different
    positions of the cycle, so that they visit different shards at the same time. With
    `probabilities`, shards are drawn independently instead.

    Parameters
    ----------
    n_shards, n_chains, tune, draws : int
    visit : int
        Draws per visit.
    seed : int
    probabilities : ndarray, optional
    long_first_visit : bool
        Whether the first `FIRST_VISIT` of warm-up is one visit.
    """

    def __init__(
        self,
        n_shards: int,
        n_chains: int,
        tune: int,
        draws: int,
        visit: int,
        seed: int,
        probabilities: np.ndarray | None = None,
        *,
        long_first_visit: bool = True,
    ) -> None:
        self.n_shards, self.n_chains = n_shards, n_chains
        self._tune, self._draws, self._visit = tune, draws, visit
        self._seed, self._given_probabilities = seed, probabilities
        self._first = FIRST_VISIT if long_first_visit else 0.0

    @property
    def probabilities(self) -> np.ndarray:
        """f_s of every shard."""
        if self._given_probabilities is not None:
            return self._given_probabilities
        return np.full(self.n_shards, 1.0 / self.n_shards)

    def visits(self, chain: int) -> list[Visit]:
        """Visits of one chain, in order."""
        first = math.ceil(self._first * self._tune)
        tuning = [first] * (first > 0) + _split(self._tune - first, self._visit)
        lengths = tuning + _split(self._draws, self._visit)
        shards = [*self._shards(chain, len(tuning), 0), *self._shards(chain, len(lengths), 1)]
        return [
            Visit(shard, number, n, number == len(tuning) - 1)
            for number, (shard, n) in enumerate(zip(shards, lengths, strict=False))
        ]

    def _shards(self, chain: int, n_visits: int, phase: int) -> list[int]:
        """Shards of a phase, warm-up or sampling, which starts with a new cycle."""
        found: list[int] = []
        if self._given_probabilities is not None:
            rng = np.random.default_rng([self._seed, phase, chain])
            return list(map(int, rng.choice(self.n_shards, n_visits, p=self._given_probabilities)))
        rng = np.random.default_rng([self._seed, phase])
        while len(found) < n_visits:
            cycle = np.roll(rng.permutation(self.n_shards), -chain * self.n_shards // self.n_chains)
            found += map(int, cycle)
        return found[:n_visits]


def _split(total: int, part: int) -> list[int]:
    """Divide a number into equal parts; the last one may be smaller."""
    whole, rest = divmod(total, part)
    return [part] * whole + [rest] * (rest > 0)


def run_chains(
    pool: WorkerPool,
    schedule: Sequence[Sequence[Visit]],
    points: Sequence[dict[str, np.ndarray]],
    seed: int,
    callback: Callable[[int, Visit, VisitDraws], None],
) -> list[list[VisitDraws]]:
    """Run all chains through their visits, one thread per chain.

    Parameters
    ----------
    pool : WorkerPool
    schedule : sequence of sequence of Visit
        Visits of each chain.
    points : sequence of dict
        Starting point of each chain.
    seed : int
    callback : callable
        Called after each visit with the chain, the visit and its draws.

    Returns
    -------
    list of list of VisitDraws
        By chain and visit.

    Raises
    ------
    Exception
        The exception of one chain; the other chains stop after their current visit.
    """
    stopped = threading.Event()

    def run(chain: int) -> list[VisitDraws]:
        seeds = np.random.SeedSequence([seed, chain]).generate_state(1 + len(schedule[chain]))
        found: list[VisitDraws] = []
        try:
            first = schedule[chain][0].shard
            state: Any = pool.call(first, "start_chain", points[chain], int(seeds[0]))
            for visit in schedule[chain]:
                if stopped.is_set():
                    break
                state, draws = pool.call(
                    visit.shard,
                    "visit",
                    state,
                    visit.n_draws,
                    int(seeds[1 + visit.number]),
                    shard=visit.shard,
                    ends_tuning=visit.ends_tuning,
                )
                found.append(draws)
                callback(chain, visit, draws)
        except BaseException:
            stopped.set()
            raise
        return found

    with ThreadPoolExecutor(len(schedule)) as threads:
        futures = [threads.submit(run, chain) for chain in range(len(schedule))]
        try:
            return [future.result() for future in futures]
        except BaseException:
            stopped.set()
            raise


class ProgressBars:
    """Progress bars, one per chain.

    Parameters
    ----------
    n_chains : int
    n_draws : int
        Draws per chain, warm-up included.
    shown : bool
    """

    def __init__(self, n_chains: int, n_draws: int, *, shown: bool) -> None:
        self._bars = Progress(
            TextColumn("chain {task.fields[chain]}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("shard {task.fields[shard]}"),
            TextColumn("step size {task.fields[step_size]}"),
            TimeRemainingColumn(),
            disable=not shown,
        )
        self._tasks = [
            self._bars.add_task("", total=n_draws, chain=chain, shard="", step_size="")
            for chain in range(n_chains)
        ]

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bars.stop()

    def advance(self, chain: int, visit: Visit, draws: VisitDraws) -> None:
        """Advance the bar of a chain by a visit."""
        sizes = draws.stats.get("step_size")
        shown = "" if sizes is None else f"{float(sizes[-1]):.2e}"
        self._bars.update(
            self._tasks[chain], advance=visit.n_draws, shard=visit.shard, step_size=shown
        )
