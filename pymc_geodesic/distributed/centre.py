"""A place near the mode, found by Newton steps whose every pass is a map and a sum over shards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pymc_geodesic.distributed.expansion import Expansion
from pymc_geodesic.manifolds import Product
from pymc_geodesic.manifolds.blocks import geodesic, project

SAMPLE, LARGE_SAMPLE = 2_000, 20_000
"""Rows of a shard that tell the Hessian: on the way, and in the end."""

MOST_STEPS, MOST_PASSES = 30, 5
NEAR, THERE = 1e-3, 1e-2
"""Mean square of the whitened gradient: of samples, and of all rows, where the search ends."""

MOST_HALVINGS = 12

Expand = Callable[[np.ndarray, int | None, bool], Expansion]
"""Place, rows of each shard (None for all), whether with a Hessian → sum over shards and prior."""


@dataclass(frozen=True)
class Centre:
    """Where surrogates are made, and how wide the posterior is there.

    Attributes
    ----------
    place : ndarray, shape (size,)
    covariance : ndarray, shape (size, size)
        Of the normal law that the posterior looks like, tangent to the manifolds.
    slope : float
        Mean square of the whitened gradient of all rows: how far the mode is, in posterior standard
        deviations.
    """

    place: np.ndarray
    covariance: np.ndarray
    slope: float

    def starts(self, product: Product, n: int, rng: np.random.Generator) -> np.ndarray:
        """Places around the centre, twice as far apart as the posterior is wide."""
        values, vectors = np.linalg.eigh(self.covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        places = []
        for _ in range(n):
            away = 2.0 * root @ rng.standard_normal(len(values))
            places.append(moved(product, self.place, away))
        return np.array(places)


def moved(product: Product, x: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """Go along the geodesic of a direction, which is projected first."""
    place, velocity = x.copy(), direction.copy()
    project(product.blocks, place, velocity)
    geodesic(product.blocks, place, velocity, 1.0)
    return place


def tangent_covariance(product: Product, x: np.ndarray, told: Expansion) -> np.ndarray:
    r"""Inverse of minus the Hessian along the manifold, of whatever signs its curvatures have.

    On a sphere it is that of P H P − (x·g) P, P the projection onto the tangent space.
    """
    size = x.size
    projector = np.eye(size)
    for column in projector:
        project(product.blocks, x, column)
    curvature = -projector @ told.hessian @ projector
    start = 0
    for _, manifold, rows in product.components:
        width = manifold.size
        for row in range(rows):
            part = slice(start + row * width, start + (row + 1) * width)
            if manifold.is_compact:
                bend = max(float(x[part] @ told.gradient[part]), 0.0)
                curvature[part, part] += bend * projector[part, part]
        start += rows * width
    values, vectors = np.linalg.eigh(curvature + np.eye(size) - projector)
    largest = float(np.abs(values).max())
    inverse = (vectors / np.maximum(np.abs(values), 1e-12 * largest)) @ vectors.T
    return projector @ inverse @ projector


def find_centre(expand: Expand, product: Product, x: np.ndarray) -> Centre:
    """Go to where the gradient of all rows is small.

    First with a sample of the rows of each shard, for value, gradient and Hessian; then with the
    gradients of all rows and the Hessian of a larger sample.

    Parameters
    ----------
    expand : callable
        Sum of the expansions of all shards and of the prior at a place.
    product : Product
    x : ndarray, shape (size,)

    Raises
    ------
    ValueError
        If the log-density is not finite at the start.
    """
    told = expand(x, SAMPLE, True)
    if not (np.isfinite(told.value) and np.isfinite(told.gradient).all()):
        raise ValueError(
            "the log-density is not finite where the search for a centre starts: look for NaN in "
            "the shards, or give other initial values (initval=)"
        )
    for _ in range(MOST_STEPS):
        covariance = tangent_covariance(product, x, told)
        step = covariance @ told.gradient
        if float(step @ told.gradient) / product.dim < NEAR:
            break
        for _ in range(MOST_HALVINGS):
            there = moved(product, x, step)
            told_there = expand(there, SAMPLE, True)
            if told_there.value > told.value:
                break
            step *= 0.5
        else:
            break
        x, told = there, told_there
    told = expand(x, LARGE_SAMPLE, True)
    covariance = tangent_covariance(product, x, told)
    return _with_all_rows(expand, product, x, covariance)


def _with_all_rows(
    expand: Expand, product: Product, x: np.ndarray, covariance: np.ndarray
) -> Centre:
    """Newton steps with the gradients of all rows."""
    best = Centre(x, covariance, np.inf)
    for _ in range(MOST_PASSES):
        gradient = expand(x, None, False).gradient
        step = covariance @ gradient
        slope = float(step @ gradient) / product.dim
        if not slope < best.slope:
            break
        best = Centre(x, covariance, slope)
        if slope < THERE:
            break
        x = moved(product, x, step)
    return best
