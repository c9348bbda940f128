"""Which shard a chain visits when, and for how many draws."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

USUAL_VISIT = 50
"""Draws of a visit, where all shards can have as many at least twice."""

FEWEST_CYCLES = 2

FIRST_VISIT = 0.6
"""Part of the tuning phase in which a chain stays: the search looks at a sample of the rows."""


class Visit(NamedTuple):
    """A stay of a chain in a shard.

    Attributes
    ----------
    shard, number, n_draws : int
        Which shard, the how-manieth visit of the chain, and its draws.
    ends_tuning : bool
        Whether the tuning phase is over behind it.
    """

    shard: int
    number: int
    n_draws: int
    ends_tuning: bool


def usual_visit(draws: int, n_shards: int) -> int:
    """Draws of a visit by default: all shards are visited equally often, and twice at least.

    Examples
    --------
    >>> from pymc_geodesic.distributed.schedule import usual_visit
    >>> usual_visit(1000, 4), usual_visit(1000, 64), usual_visit(8, 8)
    (50, 8, 1)
    """
    cycles = max(FEWEST_CYCLES, round(draws / (n_shards * USUAL_VISIT)))
    return max(1, math.ceil(draws / (n_shards * cycles)))


def checked_probabilities(given: Sequence[float] | None, n_shards: int) -> np.ndarray | None:
    """Check the probabilities with which shards are visited.

    Raises
    ------
    ValueError
        If there are not as many as shards, or one is not positive.
    """
    if given is None:
        return None
    values = np.asarray(given, dtype=float)
    if values.shape != (n_shards,) or not (np.isfinite(values).all() and (values > 0).all()):
        raise ValueError(
            f"probabilities= needs a positive number for each of the {n_shards} shards, got {given}"
        )
    return values / values.sum()


class Plan:
    """Visits of all chains.

    In every cycle all shards come once, in an order of its own; chains begin at different places of
    it, so that they are in different shards at the same time. With probabilities, shards are
    drawn independently instead.

    Parameters
    ----------
    n_shards, n_chains, tune, draws : int
    visit : int
        Draws of a visit.
    seed : int
    probabilities : ndarray, optional
    stays : bool
        Whether a chain stays in one shard for the first part of the tuning phase.
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
        stays: bool = True,
    ) -> None:
        self.n_shards, self.n_chains = n_shards, n_chains
        self._tune, self._draws, self._visit = tune, draws, visit
        self._seed, self._drawn_with = seed, probabilities
        self._first = FIRST_VISIT if stays else 0.0

    @property
    def probabilities(self) -> np.ndarray:
        """f_s of every shard."""
        if self._drawn_with is not None:
            return self._drawn_with
        return np.full(self.n_shards, 1.0 / self.n_shards)

    def _lengths(self) -> list[tuple[int, bool]]:
        first = math.ceil(self._first * self._tune)
        rest = self._tune - first
        tuning = [first] * (first > 0) + _split(rest, self._visit)
        ends = [number == len(tuning) - 1 for number in range(len(tuning))]
        sampling = [(n, False) for n in _split(self._draws, self._visit)]
        return [*zip(tuning, ends, strict=True), *sampling]

    def of_chain(self, chain: int) -> list[Visit]:
        """Visits of a chain, one after the other."""
        lengths = self._lengths()
        n_tuning = sum(1 for _ in lengths) - len(_split(self._draws, self._visit))
        shards = [*self._shards(chain, n_tuning, 0), *self._shards(chain, len(lengths), 1)]
        del shards[len(lengths) :]
        return [
            Visit(shard, number, n, ends)
            for number, (shard, (n, ends)) in enumerate(zip(shards, lengths, strict=True))
        ]

    def _shards(self, chain: int, n_visits: int, phase: int) -> list[int]:
        """Shards of a phase, which begins with a cycle of its own."""
        found: list[int] = []
        if self._drawn_with is not None:
            rng = np.random.default_rng([self._seed, phase, chain])
            return list(map(int, rng.choice(self.n_shards, n_visits, p=self._drawn_with)))
        rng = np.random.default_rng([self._seed, phase])
        while len(found) < n_visits:
            cycle = np.roll(rng.permutation(self.n_shards), -chain * self.n_shards // self.n_chains)
            found += map(int, cycle)
        return found[:n_visits]


def _split(total: int, part: int) -> list[int]:
    """Lengths of parts that make a total, the last of which may be short."""
    whole, rest = divmod(total, part)
    return [part] * whole + [rest] * (rest > 0)
