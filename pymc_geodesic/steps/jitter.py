"""Random starting points of chains, so that R-hat can detect a mode that some chains miss.

`pymc.sample` adds uniform jitter to the starting points of NUTS only. Steps with a warm-up that
adapts coordinates add the same to their Euclidean variables, under the same arguments of
`pymc.sample`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pymc_geodesic.densities.variables import ManifoldVariable
from pymc_geodesic.steps.pymc_interface import PointType


def max_jitters(arguments: Mapping[str, Any]) -> int:
    """Return how many jittered points a chain may try, given the arguments of `pymc.sample`.

    Starting points that the user specified as ``initvals`` have no jitter, nor has any point with
    an ``init`` without jitter, such as ``"adapt_diag"``.

    Examples
    --------
    >>> from pymc_geodesic.steps.jitter import max_jitters
    >>> max_jitters({"init": "auto", "initvals": None, "jitter_max_retries": 10})
    11
    >>> max_jitters({"init": "adapt_diag", "initvals": None, "jitter_max_retries": 10})
    0
    """
    has_jitter = arguments["init"] == "auto" or arguments["init"].startswith("jitter")
    if arguments["initvals"] is not None or not has_jitter:
        return 0
    return int(arguments["jitter_max_retries"]) + 1


def jittered_points(
    point: PointType,
    variables: Sequence[ManifoldVariable],
    rng: np.random.Generator,
    n_points: int,
) -> Iterator[PointType]:
    """Yield points whose Euclidean variables differ from those of a point by U(−1, 1).

    Parameters
    ----------
    point : dict
    variables : sequence of ManifoldVariable
        Those on other manifolds keep their values.
    rng : numpy.random.Generator
    n_points : int
        Number of points; none if no variable is Euclidean.
    """
    names = [each.value_name for each in variables if each.manifold.is_flat]
    for _ in range(n_points if names else 0):
        yield {
            **point,
            **{name: point[name] + rng.uniform(-1.0, 1.0, np.shape(point[name])) for name in names},
        }
