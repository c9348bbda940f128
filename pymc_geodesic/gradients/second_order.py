r"""Gradient estimates with control variates of second order.

Around an anchor c, where gradient and Hessian of all rows are known,

.. math::

    \hat g(x) = \nabla \log \pi(c) + H (x - c)
        + \hat g_b(x) - \hat g_b(c) - \hat H_b(c)\,(x - c) ,

with the same minibatch b in all three estimates. H is the sum over all rows, so that the mean over
minibatches is the gradient at x, and what does not depend on rows is exact. In posterior standard
deviations the noise of a smooth likelihood is about |x − c|⁴ d/(nN): it falls with the number of
rows, where that of first order stays as it is.

In the tails of a skewed posterior |x − c|⁴ is large. The mean is right with any other point instead
of x in the products with the two Hessians, so that they are taken at

.. math:: \tilde x = c + L\,\operatorname{clip}(L^{-1} (x - c), -r, r)

with L the factor of a metric: beyond r_j posterior standard deviations along its coordinate j the
noise grows as that of first order does. Where the log-density is quadratic r_j is infinite: a
finite bound would add noise there, which grows with the distance from c and drives chains away.

References
----------
Baker, Fearnhead, Fox, Nemeth (2019), Control variates for stochastic gradient MCMC, section 3.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pymc_geodesic.gradients.metric import Metric
from pymc_geodesic.gradients.row_curvature import RowCurvature
from pymc_geodesic.runtime.fields import ComposedField, array_at, evaluate
from pymc_geodesic.runtime.jit import compiled, compiled_for_c

REACH = 2.0
"""r_j in posterior standard deviations, along coordinates where the bound lowers the noise of the
tails; infinite along all others."""


@compiled
def clip_in_coordinates(
    away: np.ndarray,
    factor: np.ndarray,
    inverse: np.ndarray,
    reach: np.ndarray,
    beyond: np.ndarray,
) -> None:
    """Bound the coordinates j of L⁻¹ a, a vector, by ±r_j, in place.

    Parameters
    ----------
    away : ndarray, shape (size,)
        Its first d numbers are a.
    factor, inverse : ndarray, shape (d, d)
        L and L⁻¹.
    reach : ndarray, shape (d,)
        r_j.
    beyond : ndarray, of d numbers or more
        Receives by how much each coordinate exceeds the bound.
    """
    d = len(factor)
    any_beyond = False
    for i in range(d):
        z, row = 0.0, inverse[i]
        for j in range(d):
            z += row[j] * away[j]
        beyond[i] = z - min(max(z, -reach[i]), reach[i])
        any_beyond |= beyond[i] != 0.0
    if not any_beyond:
        return
    for j in range(d):
        if beyond[j] != 0.0:
            for i in range(d):
                away[i] -= factor[i, j] * beyond[j]


@compiled_for_c
def _expanded_difference(position: Any, argument: int, context: Any, output: Any) -> float:
    table = array_at(context, (19,), np.int64)
    size, n_blocks, batch_size = table[6], table[7], table[8]
    minibatch_context = array_at(table[1], (table[2],), np.int64)
    curvature_context = array_at(table[4], (table[5],), np.int64)
    blocks = array_at(table[9], (n_blocks, 3), np.int64)
    weights = array_at(table[10], (4,), np.float64)
    place = array_at(table[11], (2 * size,), np.float64)
    total = array_at(table[12], (size,), np.float64)
    hessian = array_at(table[13], (size, size), np.float64)
    there = array_at(table[14], (2 * size,), np.float64)
    d = table[17]
    factor = array_at(table[15], (d, d), np.float64)
    inverse = array_at(table[16], (d, d), np.float64)
    reach = array_at(table[18], (d,), np.float64)
    x = array_at(position, (size,), np.float64)
    away = place[size:]
    gradient = array_at(output, (size,), np.float64)
    evaluate(table[0], x, argument, minibatch_context, gradient)
    for i in range(size):
        away[i] = x[i] - place[i]
    clip_in_coordinates(away, factor, inverse, reach, there)
    for i in range(n_blocks):
        first_row = minibatch_context[blocks[i, 1]] + argument * blocks[i, 2]
        curvature_context[blocks[i, 0]] = first_row
    weights[0], weights[1] = weights[2], weights[3]
    evaluate(table[3], place, batch_size, curvature_context, there)
    for i in range(size):
        known = total[i]
        row = hessian[i]
        for j in range(size):
            known += row[j] * away[j]
        gradient[i] += known - there[i] - there[size + i]
    return 0.0


class SecondOrderVariates:
    """A field of minibatch gradients whose error at x is of order (x − c)² near c.

    Parameters
    ----------
    curvature : RowCurvature
    n_euclidean : int
        d, how many coordinates at the beginning have a metric.

    Attributes
    ----------
    field : ComposedField
    anchor, total : ndarray, shape (size,)
        c, and the gradient of all rows there.
    hessian : ndarray, shape (size, size)
        H, their Hessian.
    reach : ndarray, shape (n_euclidean,)
        r_j.
    """

    def __init__(self, curvature: RowCurvature, n_euclidean: int) -> None:
        size = curvature.size
        self._factor, self._inverse = np.eye(n_euclidean), np.eye(n_euclidean)
        self._place, self._there = np.zeros(2 * size), np.zeros(2 * size)
        self.anchor, self.total = self._place[:size], np.zeros(size)
        self.hessian = np.zeros((size, size))
        self.reach = np.full(n_euclidean, REACH)
        context = np.array(
            [
                curvature.minibatch.address,
                curvature.minibatch.context.ctypes.data,
                curvature.minibatch.context.size,
                curvature.inner.address,
                curvature.inner.context.ctypes.data,
                curvature.inner.context.size,
                size,
                len(curvature.inputs),
                curvature.batch_size,
                curvature.inputs.ctypes.data,
                curvature.weights.ctypes.data,
                self._place.ctypes.data,
                self.total.ctypes.data,
                self.hessian.ctypes.data,
                self._there.ctypes.data,
                self._factor.ctypes.data,
                self._inverse.ctypes.data,
                n_euclidean,
                self.reach.ctypes.data,
            ],
            dtype=np.int64,
        )
        inner = [curvature.minibatch, curvature.inner]
        self.field = ComposedField(_expanded_difference, context, inner, (self, curvature))

    def use(self, anchor: np.ndarray, total: np.ndarray, hessian: np.ndarray) -> None:
        """Take over an anchor, and gradient and Hessian of all rows there."""
        self.anchor[:], self.total[:], self.hessian[:] = anchor, total, hessian

    def reach_along(self, metric: Metric) -> None:
        """Bound differences of second order in the coordinates of a metric."""
        self._factor[:] = metric.to_direction(np.eye(len(self._factor))).T
        self._inverse[:] = np.linalg.inv(self._factor)
