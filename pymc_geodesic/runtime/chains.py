"""The chains of models that sample themselves: one after the other, each with its bar."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from rich.progress import track


def each_chain(
    random_seed: int | np.random.Generator | None,
    chains: int,
    iterations: int,
    *,
    progressbar: bool,
) -> Iterator[tuple[int, np.random.Generator, Iterable[int]]]:
    """Yield the number of each chain, its generator, and its iterations to loop over.

    Examples
    --------
    >>> from pymc_geodesic.runtime.chains import each_chain
    >>> [
    ...     (chain, list(iterations))
    ...     for chain, _, iterations in each_chain(1, 2, 3, progressbar=False)
    ... ]
    [(0, [0, 1, 2]), (1, [0, 1, 2])]
    """
    for chain, rng in enumerate(np.random.default_rng(random_seed).spawn(chains)):
        iterations_seen = track(
            range(iterations), f"Chain {chain}", disable=not progressbar, transient=True
        )
        yield chain, rng, iterations_seen


def draw_after(iteration: int, tune: int, thin: int = 1) -> int | None:
    """Return which draw an iteration completes, or None where none is kept.

    Examples
    --------
    >>> from pymc_geodesic.runtime.chains import draw_after
    >>> [draw_after(iteration, tune=1, thin=2) for iteration in range(5)]
    [None, None, 0, None, 1]
    """
    draw, left = divmod(iteration - tune + 1, thin)
    return draw - 1 if iteration >= tune and left == 0 else None
