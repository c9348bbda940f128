"""What the shards find out together before and after sampling."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pymc_geodesic.densities.variables import ManifoldVariable, product_of
from pymc_geodesic.distributed.agreement import N_PLACES, shifts_of_shards
from pymc_geodesic.distributed.centre import LARGE_SAMPLE, Centre, find_centre
from pymc_geodesic.distributed.crew import Crew
from pymc_geodesic.distributed.expansion import Expansion
from pymc_geodesic.distributed.positions import position_of
from pymc_geodesic.distributed.resident import VisitDraws
from pymc_geodesic.distributed.surrogates import Quadratic, conducive_terms

LARGEST_QUADRATIC = 500
"""Coordinates up to which surrogates have a Hessian, as a metric is dense."""


def common_centre(crew: Crew, variables: Sequence[ManifoldVariable], start: np.ndarray) -> Centre:
    """Find a place near the mode of the posterior of all shards; see `find_centre`."""
    curved = start.size <= LARGEST_QUADRATIC

    def expand(x: np.ndarray, n_rows: int | None, curvature: bool) -> Expansion:
        total = crew.call(0, "expand_rest", x, curvature=curved)
        for part in crew.map("expand", x, n_rows, curvature=curvature and curved, far=True):
            total = total.plus(part)
        return total

    return find_centre(expand, product_of(variables), start)


def surrogates_at(crew: Crew, centre: Centre) -> list[Quadratic]:
    """Expand the log-likelihood of each shard: gradients of all rows, Hessians of a sample."""
    curved = centre.place.size <= LARGEST_QUADRATIC
    gradients = crew.map("expand", centre.place, None, curvature=False)
    hessians = crew.map("expand", centre.place, LARGE_SAMPLE, curvature=curved)
    return [
        Quadratic(centre.place, exact.gradient, sampled.hessian)
        for exact, sampled in zip(gradients, hessians, strict=True)
    ]


def whitening_covariance(
    centre: Centre, variables: Sequence[ManifoldVariable]
) -> np.ndarray | None:
    """Covariance of the Euclidean coordinates, in the coordinates of which chains are to move."""
    flat = sum(v.rows * v.manifold.size for v in variables if v.manifold.is_flat)
    if not 0 < flat <= LARGEST_QUADRATIC:
        return None
    return centre.covariance[:flat, :flat]


def settle(
    crew: Crew,
    centre: Centre,
    variables: Sequence[ManifoldVariable],
    probabilities: np.ndarray,
    lengths: tuple[int, int],
    *,
    conducive: bool,
) -> None:
    """Tell each shard what the others say, the metric, and the draws of tuning and after it."""
    terms: list[Quadratic | None] = [None] * crew.n_shards
    if conducive:
        terms = list(conducive_terms(surrogates_at(crew, centre), list(probabilities)))
    covariance = whitening_covariance(centre, variables)
    crew.settle_all([(term, covariance, *lengths) for term in terms])


def shifts_at(
    crew: Crew,
    centre: Centre,
    variables: Sequence[ManifoldVariable],
    probabilities: np.ndarray,
    chains: Sequence[Sequence[VisitDraws]],
) -> np.ndarray:
    """Compare what the shards show at some of the last draws; see `shifts_of_shards`."""
    places = [position_of(variables, point) for point in last_points(chains)]
    gradients = crew.map("gradients", np.array(places))
    return shifts_of_shards(np.array(gradients), list(probabilities), centre.covariance)


def last_points(chains: Sequence[Sequence[VisitDraws]]) -> list[dict[str, np.ndarray]]:
    """Last draws of the last visits, of one chain after the other."""
    n = min(N_PLACES, len(chains) * min(len(visits) for visits in chains))
    last = [chains[i % len(chains)][-1 - i // len(chains)] for i in range(n)]
    return [{name: drawn[-1] for name, drawn in visit.values.items()} for visit in last]
