"""Chains and iterations of algorithms that do not run in `pymc.sample`."""

from __future__ import annotations

import math
import warnings
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
    """Yield the number of each chain, its generator, and its iterations with a progress bar.

    Examples
    --------
    >>> from pymc_geodesic.runtime.iterations import each_chain
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


def draw_after(iteration: int, tune: int, thin: int) -> int | None:
    """Return the draw that an iteration completes; None in warm-up and between thinned draws.

    Examples
    --------
    >>> from pymc_geodesic.runtime.iterations import draw_after
    >>> [draw_after(iteration, tune=1, thin=2) for iteration in range(5)]
    [None, None, 0, None, 1]
    """
    draw, left = divmod(iteration - tune + 1, thin)
    return draw - 1 if iteration >= tune and left == 0 else None


class ConvergenceWarning(UserWarning):
    """A fit reached the maximum number of passes before it converged.

    Issued by `spherical_admixture_vi`, `vmf_mixture_em` and
    `pymc_geodesic.mixtures.spherical_kmeans`, as by the estimators of scikit-learn. They return
    the best fit so far.

    Examples
    --------
    >>> import warnings
    >>> from pymc_geodesic.datasets import make_vmf_mixture
    >>> from pymc_geodesic.mixtures import vmf_mixture_em
    >>> from pymc_geodesic.topics import ConvergenceWarning
    >>> points, _ = make_vmf_mixture([[1.0, 0.0], [0.0, 1.0]], 2.0, 100, random_seed=1)
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", ConvergenceWarning)
    ...     fit = vmf_mixture_em(points, 2, max_passes=2, random_seed=1)
    >>> fit.weights.shape
    (2,)
    """


def warn_not_converged(name: str, max_passes: int, gain: float, unit: str) -> None:
    """Issue a `ConvergenceWarning` to the caller of a public function.

    Parameters
    ----------
    name : str
        Name of the function.
    max_passes : int
    gain : float
        Improvement of the last pass; infinite if there was only one.
    unit : str
        Format string of the improvement.
    """
    last = f": the last pass still {unit.format(gain)}" if math.isfinite(gain) else ""
    warnings.warn(
        f"{name} did not converge within max_passes={max_passes}{last}. Increase max_passes; the "
        "best fit so far is returned",
        ConvergenceWarning,
        stacklevel=3,
    )
