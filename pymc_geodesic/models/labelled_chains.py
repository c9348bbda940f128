"""The chains of samplers that tell labelled documents apart by their topics."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import xarray as xr

from pymc_geodesic.models.chains import draw_after, each_chain
from pymc_geodesic.models.labelled_counts import LabelledCounts, Recorder

__all__ = ["LabelledChain", "Run", "sample_labelled"]


class LabelledChain(Protocol):
    """One chain.

    Attributes
    ----------
    in_topics : ndarray, shape (D, K)
        Counts of the tokens of each document in topics, when it was last visited.
    """

    in_topics: np.ndarray

    def advance(self, iteration: int) -> None:
        """Go on to what may be kept."""

    def topics(self) -> np.ndarray:
        """Draw φ, shape (K, V)."""

    def weights(self) -> np.ndarray:
        """Draw η, shape (L, K)."""

    def stats(self) -> dict[str, float]:
        """Sample stats of the last iteration, of which one is ``documents``."""


@dataclass(frozen=True)
class Run:
    """How many draws of how many chains, and what is kept of them; see `medlda_gibbs`."""

    chains: int
    draws: int
    tune: int
    thin: int
    var_names: Sequence[str] | None
    random_seed: int | np.random.Generator | None
    progressbar: bool


def sample_labelled(
    data: LabelledCounts,
    run: Run,
    begin: Callable[[np.random.Generator], LabelledChain],
    *,
    cost: float,
    margin: float,
    multiclass: bool = False,
) -> xr.DataTree:
    """Run all chains, one after the other.

    Parameters
    ----------
    data : LabelledCounts
    run : Run
    begin : callable
        Begins a chain with a generator of its own.
    cost, margin : float
        c and ℓ.
    multiclass : bool
        Whether the hinge is that of the largest rival, and not one for each class.
    """
    recorder = Recorder(data, run.chains, run.draws, run.var_names)
    iterations = run.tune + run.draws * run.thin
    for number, rng, seen in each_chain(
        run.random_seed, run.chains, iterations, progressbar=run.progressbar
    ):
        chain = begin(rng)
        began = time.perf_counter()
        for iteration in seen:
            chain.advance(iteration)
            draw = draw_after(iteration, run.tune, run.thin)
            if draw is None:
                continue
            ended = time.perf_counter()
            recorder.keep(
                number,
                draw,
                chain.topics() if recorder.keeps_topics else None,
                chain.weights(),
                chain.in_topics,
                margin,
                multiclass=multiclass,
                perf_counter_diff=ended - began,
                **chain.stats(),
            )
            began = time.perf_counter()
    return recorder.tree({"cost": cost, "margin": margin})
