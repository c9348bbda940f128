"""Chains on their way from shard to shard."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from pymc_geodesic.distributed.crew import Crew
from pymc_geodesic.distributed.resident import VisitDraws
from pymc_geodesic.distributed.schedule import Visit

Told = Callable[[int, Visit, VisitDraws], None]
"""What is called behind each visit, with the chain, the visit and its draws."""


def travel(
    crew: Crew,
    plans: Sequence[Sequence[Visit]],
    points: Sequence[dict[str, np.ndarray]],
    seed: int,
    told: Told,
) -> list[list[VisitDraws]]:
    """Let all chains go through their visits, each in a thread that waits for answers.

    Parameters
    ----------
    crew : Crew
    plans : sequence of sequence of Visit
        Of each chain.
    points : sequence of dict
        Where each begins.
    seed : int
    told : callable

    Returns
    -------
    list of list of VisitDraws
        By chain and visit.

    Raises
    ------
    Exception
        What one of the chains met; the others end behind their present visit.
    """
    stopped = threading.Event()

    def one(chain: int) -> list[VisitDraws]:
        seeds = np.random.SeedSequence([seed, chain]).generate_state(1 + len(plans[chain]))
        found: list[VisitDraws] = []
        try:
            state: Any = crew.call(plans[chain][0].shard, "begin", points[chain], int(seeds[0]))
            for visit in plans[chain]:
                if stopped.is_set():
                    break
                state, draws = crew.call(
                    visit.shard,
                    "visit",
                    state,
                    visit.n_draws,
                    int(seeds[1 + visit.number]),
                    number=visit.shard,
                    ends_tuning=visit.ends_tuning,
                )
                found.append(draws)
                told(chain, visit, draws)
        except BaseException:
            stopped.set()
            raise
        return found

    with ThreadPoolExecutor(len(plans)) as threads:
        futures = [threads.submit(one, chain) for chain in range(len(plans))]
        try:
            return [future.result() for future in futures]
        except BaseException:
            stopped.set()
            raise
