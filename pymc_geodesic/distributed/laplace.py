"""Laplace approximation of the posterior of all shards, and the surrogates expanded at its mode.

The mode is found by Newton's method. Value, gradient and Hessian of each iteration are sums over
the shards, which their workers compute concurrently.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pymc_geodesic.densities.variables import ManifoldVariable, product_of
from pymc_geodesic.distributed.surrogates import Expansion, Quadratic, conducive_terms
from pymc_geodesic.distributed.workers import WorkerPool
from pymc_geodesic.manifolds import Manifold, Product
from pymc_geodesic.manifolds.product_flows import geodesic, project

SUBSAMPLE, LARGE_SUBSAMPLE = 2_000, 20_000
"""Rows of each shard for the Hessian: during the iterations, and at the mode."""

MAX_NEWTON_STEPS, MAX_FULL_PASSES = 30, 5
SUBSAMPLE_TOLERANCE, FULL_TOLERANCE = 1e-3, 1e-2
"""Newton decrement per dimension at which the iterations stop: on subsamples, and on all rows."""

MAX_HALVINGS = 12

MAX_DENSE_SIZE = 500
"""Coordinates up to which surrogates have a Hessian, and the mass matrix is dense."""

Expand = Callable[[np.ndarray, int | None, bool], Expansion]
"""Function of a position, the rows of each shard (None for all) and whether to compute the Hessian;
returns the sum of the expansions of all shards and of the prior."""


def variables_with_charts(variables: Sequence[ManifoldVariable]) -> list[str]:
    """Names of variables that surrogates do not support: simplices and half-lines."""
    return [
        variable.name
        for variable in variables
        if variable.manifold.has_edge
        or type(variable.manifold).from_coordinates is not Manifold.from_coordinates
    ]


def point_to_position(
    variables: Sequence[ManifoldVariable], point: Mapping[str, np.ndarray]
) -> np.ndarray:
    """Coordinates of a point of PyMC, shape (size,)."""
    return np.concatenate([v.coordinates(point[v.value_name]).ravel() for v in variables])


def position_to_point(
    variables: Sequence[ManifoldVariable], position: np.ndarray, point: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Point of PyMC with these coordinates, and the other values of another point."""
    made, start = dict(point), 0
    for variable in variables:
        end = start + variable.rows * variable.manifold.size
        values = variable.values(position[start:end])
        made[variable.value_name] = values.reshape(variable.value_shape)
        start = end
    return made


@dataclass(frozen=True)
class LaplaceApproximation:
    """Normal approximation of the posterior near its mode.

    Attributes
    ----------
    position : ndarray, shape (size,)
    covariance : ndarray, shape (size, size)
        In the tangent space of the manifolds.
    decrement : float
        Newton decrement per dimension: mean square of the distance to the mode in posterior
        standard deviations.
    """

    position: np.ndarray
    covariance: np.ndarray
    decrement: float

    def draw_starts(self, product: Product, n: int, rng: np.random.Generator) -> np.ndarray:
        """Overdispersed starting positions, with twice the posterior standard deviation."""
        values, vectors = np.linalg.eigh(self.covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        starts = []
        for _ in range(n):
            offset = 2.0 * root @ rng.standard_normal(len(values))
            starts.append(follow_geodesic(product, self.position, offset))
        return np.array(starts)


def follow_geodesic(product: Product, x: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """End of the geodesic of unit time from x with the projection of a direction as velocity."""
    position, velocity = x.copy(), direction.copy()
    project(product.blocks, position, velocity)
    geodesic(product.blocks, position, velocity, 1.0)
    return position


def tangent_covariance(product: Product, x: np.ndarray, expansion: Expansion) -> np.ndarray:
    r"""Inverse of minus the Riemannian Hessian, with the absolute values of its eigenvalues.

    On a sphere the Hessian is P H P − (x·g) P, with P the projection onto the tangent space.
    """
    size = x.size
    projector = np.eye(size)
    for column in projector:
        project(product.blocks, x, column)
    curvature = -projector @ expansion.hessian @ projector
    start = 0
    for _, manifold, rows in product.components:
        width = manifold.size
        for row in range(rows):
            part = slice(start + row * width, start + (row + 1) * width)
            if manifold.is_compact:
                normal = max(float(x[part] @ expansion.gradient[part]), 0.0)
                curvature[part, part] += normal * projector[part, part]
        start += rows * width
    values, vectors = np.linalg.eigh(curvature + np.eye(size) - projector)
    largest = float(np.abs(values).max())
    inverse = (vectors / np.maximum(np.abs(values), 1e-12 * largest)) @ vectors.T
    return projector @ inverse @ projector


def laplace_approximation(expand: Expand, product: Product, x: np.ndarray) -> LaplaceApproximation:
    """Find the mode by Newton's method, on subsamples of the rows first.

    The last iterations use the gradients of all rows and the Hessian of a larger subsample.

    Parameters
    ----------
    expand : callable
        Expansion of the log-density.
    product : Product
    x : ndarray, shape (size,)
        Starting position.

    Raises
    ------
    ValueError
        If the log-density is not finite at the start.
    """
    current = expand(x, SUBSAMPLE, True)
    if not (np.isfinite(current.value) and np.isfinite(current.gradient).all()):
        raise ValueError(
            "the log-density is not finite at the initial point. Check the shards for NaN, or "
            "set other initial values (initval=)"
        )
    for _ in range(MAX_NEWTON_STEPS):
        covariance = tangent_covariance(product, x, current)
        step = covariance @ current.gradient
        if float(step @ current.gradient) / product.dim < SUBSAMPLE_TOLERANCE:
            break
        for _ in range(MAX_HALVINGS):
            proposal = follow_geodesic(product, x, step)
            proposed = expand(proposal, SUBSAMPLE, True)
            if proposed.value > current.value:
                break
            step *= 0.5
        else:
            break
        x, current = proposal, proposed
    current = expand(x, LARGE_SUBSAMPLE, True)
    covariance = tangent_covariance(product, x, current)
    best = LaplaceApproximation(x, covariance, np.inf)
    for _ in range(MAX_FULL_PASSES):
        gradient = expand(x, None, False).gradient
        step = covariance @ gradient
        decrement = float(step @ gradient) / product.dim
        if not decrement < best.decrement:
            break
        best = LaplaceApproximation(x, covariance, decrement)
        if decrement < FULL_TOLERANCE:
            break
        x = follow_geodesic(product, x, step)
    return best


def approximate_posterior(
    pool: WorkerPool, variables: Sequence[ManifoldVariable], start: np.ndarray
) -> LaplaceApproximation:
    """Laplace approximation of the posterior of all shards; see `laplace_approximation`."""
    dense = start.size <= MAX_DENSE_SIZE

    def expand(x: np.ndarray, n_rows: int | None, curvature: bool) -> Expansion:
        total = pool.call(0, "expand_prior", x, curvature=dense)
        for part in pool.map("expand", x, n_rows, curvature=curvature and dense, far=True):
            total = total.plus(part)
        return total

    return laplace_approximation(expand, product_of(variables), start)


def configure_shards(
    pool: WorkerPool,
    approximation: LaplaceApproximation,
    variables: Sequence[ManifoldVariable],
    probabilities: np.ndarray,
    lengths: tuple[int, int],
    *,
    conducive: bool,
) -> None:
    """Send each shard its conducive term, the mass matrix, and the lengths of the chains.

    Parameters
    ----------
    pool : WorkerPool
    approximation : LaplaceApproximation
    variables : sequence of ManifoldVariable
    probabilities : ndarray, shape (shard,)
        With which shards are visited.
    lengths : tuple of int
        Draws of warm-up and after it.
    conducive : bool
    """
    position = approximation.position
    dense = position.size <= MAX_DENSE_SIZE
    terms: list[Quadratic | None] = [None] * pool.n_shards
    if conducive:
        # gradients of all rows, Hessians of a subsample
        gradients = pool.map("expand", position, None, curvature=False)
        hessians = pool.map("expand", position, LARGE_SUBSAMPLE, curvature=dense)
        surrogates = [
            Quadratic(position, exact.gradient, sampled.hessian)
            for exact, sampled in zip(gradients, hessians, strict=True)
        ]
        terms = list(conducive_terms(surrogates, list(probabilities)))
    flat = sum(v.rows * v.manifold.size for v in variables if v.manifold.is_flat)
    covariance = approximation.covariance[:flat, :flat] if 0 < flat <= MAX_DENSE_SIZE else None
    pool.configure_all([(term, covariance, *lengths) for term in terms])
