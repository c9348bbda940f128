"""Random starting points of chains, so that R-hat can detect a mode that some chains miss.

`pymc.sample` adds uniform jitter to the starting points of NUTS only. Steps with a warm-up that
adapts coordinates add the same to their Euclidean variables, under the same arguments of
`pymc.sample`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pymc_geodesic.densities.model_terms import LogTerms
from pymc_geodesic.densities.variables import ManifoldVariable
from pymc_geodesic.steps.pymc_interface import PointType

MAX_GROWTH, SMALLEST_GRADIENT = 10.0, 100.0
"""Maximum ratio of the largest derivative at a jittered point to that at the point itself, and the
smallest of the latter for this purpose. Heuristic."""


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


def with_jitter(
    point: PointType,
    variables: Sequence[ManifoldVariable],
    rng: np.random.Generator,
    n_points: int,
    gradient: Callable[[PointType], np.ndarray],
    log_terms: LogTerms,
) -> PointType:
    """Return a point whose Euclidean variables differ by 2⁻ᵏ U(−1, 1), or else the same point.

    Parameters
    ----------
    point : dict
    variables : sequence of ManifoldVariable
        Those on other manifolds keep their values.
    rng : numpy.random.Generator
    n_points : int
        Number of points that are tried, k = 0, 1, …: the first is returned at which the log-density
        is finite and not too steep.
    gradient : callable
        Gradient of the log-density at a point.
    log_terms : LogTerms
    """
    names = [each.value_name for each in variables if each.manifold.is_flat]
    if not names:
        return point
    at_point = gradient(point)
    for k in range(n_points):
        jitter = {name: 0.5**k * rng.uniform(-1.0, 1.0, np.shape(point[name])) for name in names}
        found = {**point, **{name: point[name] + jitter[name] for name in names}}
        if is_near(gradient(found), at_point) and not log_terms.fails(found):
            return found
    return point


def is_near(gradient: np.ndarray, at_point: np.ndarray) -> bool:
    """Whether a jittered point is near enough, given the gradients there and at the point itself.

    With a logarithmic link and a covariate of large values, the log-density may be so steep at a
    distance of one that chains would not leave that region.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.steps.jitter import is_near
    >>> is_near(np.array([3e4]), np.array([1e4])), is_near(np.array([3e9]), np.array([1e4]))
    (True, False)
    """
    bound = MAX_GROWTH * max(float(np.abs(at_point).max(initial=0.0)), SMALLEST_GRADIENT)
    return bool(np.isfinite(gradient).all() and np.abs(gradient).max(initial=0.0) <= bound)
