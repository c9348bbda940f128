"""Measurement of the largest curvature and of the gradient noise, by differences of gradients."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from pymc_geodesic.integrators import block_slice, refresh_velocity
from pymc_geodesic.manifolds.product import Space
from pymc_geodesic.manifolds.product_flows import geodesic, project
from pymc_geodesic.runtime.gradient_functions import Callback, evaluate
from pymc_geodesic.runtime.jit import Integers, Matrix, Stream, Vector, compiled, kernel, part


class Line(NamedTuple):
    """A geodesic from a position.

    Parameters
    ----------
    x : ndarray, shape (size,)
        Position, unchanged.
    direction : ndarray, shape (size,)
        Direction of the power iteration, changed in place.
    length : float
        Arc length of the finite difference.
    """

    x: Vector
    direction: Vector
    length: float


@part
def inner(first: Vector, second: Vector) -> float:
    """Inner product; the loop compiles three times faster than an array expression."""
    total = 0.0
    for i in range(first.size):
        total += first[i] * second[i]
    return total


@part
def measure_noise(
    space: Space, x: Vector, gradient: Vector, previous: Vector, noise: Vector
) -> None:
    """Estimate the variance of a tangential gradient component of each block from a difference."""
    blocks, size = space.blocks, x.size
    difference = np.empty(size)
    for i in range(size):
        difference[i] = gradient[i] - previous[i]
    project(blocks, x, difference)
    for block in range(blocks.shape[0]):
        own = block_slice(blocks, block)
        total = 0.0
        for i in range(own.start, own.stop):
            total += difference[i] * difference[i]
        noise[block] = 0.5 * total / space.dims[block]


@kernel
def probe(
    logp_grad: Callback,
    minibatch: int,
    space: Space,
    line: Line,
    previous: Vector,
    noise: Vector,
    n_values: int,
) -> float:
    r"""Measure the largest curvature and the variance of the gradient estimate.

    One step of the power iteration for −∇²log π along the manifold: with the unit direction u and
    the geodesic from ``x`` with velocity u, the curvature is the derivative of −u·∇log π along it,
    by a finite difference over its length, and the next direction is the difference of the
    gradients.

    The noise is estimated from two independent gradient estimates at the same point, whose
    difference has twice the variance of one.

    Parameters
    ----------
    logp_grad : Callback
        Gradient function (`pymc_geodesic.runtime.gradient_functions`).
    minibatch : int
    space : Space
        The product manifold.
    line : Line
    previous : ndarray, shape (size,) or (0,)
        Gradient at ``x`` from another minibatch; empty if there is none.
    noise : ndarray, shape (n_blocks,)
        Receives the mean variance of a tangential component of the gradient estimate.
    n_values : int
        Number of log-densities that follow the gradient in the output of the function.

    Returns
    -------
    float
        Curvature along the line, the inverse square of a length; NaN if the gradient is not
        finite.
    """
    blocks, x, direction, time = space.blocks, line.x, line.direction, line.length
    size = x.size
    output = np.empty(size + n_values)
    moved_output = np.empty(size + n_values)
    gradient = output[:size]
    moved_gradient = moved_output[:size]
    moved = np.empty(size)
    for i in range(size):
        moved[i] = x[i]

    evaluate(logp_grad.address, x, minibatch, logp_grad.context, output)
    project(blocks, x, gradient)
    if previous.size:
        measure_noise(space, x, gradient, previous, noise)

    project(blocks, x, direction)
    norm = math.sqrt(inner(direction, direction))
    if norm == 0.0:
        return 0.0
    velocity = np.empty(size)
    for i in range(size):
        direction[i] /= norm
        velocity[i] = direction[i]
    along = inner(gradient, velocity)
    geodesic(blocks, moved, velocity, time)
    evaluate(logp_grad.address, moved, minibatch, logp_grad.context, moved_output)
    curvature = (along - inner(moved_gradient, velocity)) / time
    project(blocks, moved, moved_gradient)
    if not math.isfinite(curvature):
        return np.nan
    # the old direction is kept as a small component, for regions where the density is flat
    scale = 1e-3 * max(abs(curvature), 1e-12)
    for i in range(size):
        direction[i] = (gradient[i] - moved_gradient[i]) / time + scale * direction[i]
    return curvature


@kernel
def probe_minibatches(
    logp_grad: Callback,
    minibatches: Integers,
    space: Space,
    line: Line,
    stream: Stream,
    last_gradient: Vector,
    curvatures: Vector,
    noises: Matrix,
) -> None:
    """Measure curvature and noise with several minibatches at the same point; see `probe`.

    Parameters
    ----------
    minibatches : ndarray of int64, shape (n,)
        Minibatch of each measurement.
    stream : ndarray of uint64, shape (2,)
        Random stream, from which a new direction is drawn if a gradient is not finite.
    last_gradient : ndarray, shape (size,) or (0,)
        Receives the gradient at ``x`` of the last minibatch; empty if all minibatches are the same,
        so that noise cannot be measured.
    curvatures : ndarray, shape (n,)
        Receives the curvatures.
    noises : ndarray, shape (n, n_blocks)
        Receives the variances, except at the first measurement.
    logp_grad, space, line
        See `probe`.
    """
    n_values: Any = np.int64(1)  # a literal would make Numba compile `probe` a second time
    for i in range(minibatches.size):
        previous = last_gradient[: last_gradient.size if i else 0]
        curvatures[i] = probe(logp_grad, minibatches[i], space, line, previous, noises[i], n_values)
        if not math.isfinite(curvatures[i]) and i < minibatches.size - 1:
            refresh_velocity(space.blocks, line.x, line.direction, stream)
        if last_gradient.size:
            evaluate(logp_grad.address, line.x, minibatches[i], logp_grad.context, last_gradient)


@compiled
def differences_of_pairs(
    logp_grad: int,
    context: np.ndarray,
    first: np.ndarray,
    second: np.ndarray,
    points: np.ndarray,
    differences: np.ndarray,
) -> None:
    """Compute differences of two independent gradient estimates, one pair at each point.

    Parameters
    ----------
    logp_grad, context
        Gradient function of a minibatch, by address; see
        `pymc_geodesic.runtime.gradient_functions`.
    first, second : ndarray of int64, shape (n,)
        The two minibatches of each pair.
    points : ndarray, shape (n, size)
    differences : ndarray, shape (n, size)
        Receives the differences, whose covariance is twice that of the estimate.
    """
    other = np.empty(points.shape[1])
    for pair in range(first.size):
        evaluate(logp_grad, points[pair], first[pair], context, differences[pair])
        evaluate(logp_grad, points[pair], second[pair], context, other)
        for i in range(other.size):
            differences[pair, i] -= other[i]
