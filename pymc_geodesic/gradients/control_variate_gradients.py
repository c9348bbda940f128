r"""Minibatch gradients with control variates of first and second order.

At the centering point c the gradient over all rows is known, and a minibatch b estimates only the
difference. The first-order estimate is

.. math::

    \hat g(x) = \nabla \log \pi(c) + \hat g_b(x) - \hat g_b(c) ,

with the same minibatch in both estimates. With the Hessian H of the terms of all rows at c, and Ĥ_b
of those of the minibatch, the second-order estimate is

.. math::

    \hat g(x) = \nabla \log \pi(c) + H (x - c)
        + \hat g_b(x) - \hat g_b(c) - \hat H_b(c)\,(x - c) .

Both are unbiased, and terms that do not depend on the rows are exact. In units of posterior
standard deviations the noise of a smooth likelihood decreases from about N/n to |x − c|² d/n at
first order, independent of the number of rows, and to |x − c|⁴ d/(nN) at second order.

In the tails of a skewed posterior |x − c|⁴ is large. The estimate is also unbiased with another
point instead of x in the products with the two Hessians, here

.. math:: \tilde x = c + L\,\operatorname{clip}(L^{-1} (x - c), -r, r)

with the factor L of a metric: beyond r_j posterior standard deviations along whitened coordinate j
the noise grows like first-order noise. If the log-density is quadratic along a coordinate, r_j is
infinite: a finite bound would add noise that grows with the distance from c, so that chains could
diverge. If H has the structure of independent groups
(`pymc_geodesic.gradients.structured_hessian`), or the metric is not dense, the coordinates of the
model divided by their standard deviations are clipped instead of whitened coordinates.

References
----------
Baker, Fearnhead, Fox, Nemeth (2019), Control variates for stochastic gradient MCMC, section 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_geodesic.gradients.full_gradient import RowCurvature
from pymc_geodesic.gradients.metric import Metric
from pymc_geodesic.gradients.rare_rows import TABLE_LENGTH, RareRows, rare_rows_in_minibatch
from pymc_geodesic.gradients.structured_hessian import StructuredHessian, structured_product
from pymc_geodesic.runtime.gradient_functions import (
    ComposedFunction,
    GradientFunctionLike,
    array_at,
    evaluate,
)
from pymc_geodesic.runtime.jit import compiled, compiled_for_c

# entries of the contexts, addresses and lengths; that of first order ends with the gradient of the
# minibatch at the center
(
    _INNER,
    _INNER_CONTEXT,
    _N_INNER_CONTEXT,
    _SIZE,
    _CENTER,
    _TOTAL,
    _AT_CENTER,
    _CURVATURE,
    _CURVATURE_CONTEXT,
    _N_CURVATURE_CONTEXT,
    _N_BLOCKS,
    _BATCH_SIZE,
    _BLOCKS,
    _WEIGHTS,
    _ROWS,
    _FACTOR,
    _INVERSE,
    _N_EUCLIDEAN,
    _CLIPPING_DISTANCE,
    _MINIBATCH_CONTEXT,
    _N_MINIBATCH_CONTEXT,
    _HAS_RARE,
    _RARE,
    _RARE_BLOCKS,
    _OF_RARE,
    _GROUP_BLOCKS,
    _COMMON,
    _N_COMMON,
    _STARTS,
    _N_VECTORS,
    _N_GROUPS,
    _STRIDES,
    _LENGTH,
) = range(33)
_FIRST_ORDER_LENGTH = _AT_CENTER + 1

# --- first order ---------------------------------------------------------------------------------


@compiled_for_c
def _first_order_estimate(position: Any, minibatch: int, context: Any, output: Any) -> float:
    table = array_at(context, (_FIRST_ORDER_LENGTH,), np.int64)
    size = table[_SIZE]
    center = array_at(table[_CENTER], (size,), np.float64)
    total = array_at(table[_TOTAL], (size,), np.float64)
    at_center = array_at(table[_AT_CENTER], (size,), np.float64)
    inner_context = array_at(table[_INNER_CONTEXT], (table[_N_INNER_CONTEXT],), np.int64)
    x = array_at(position, (size,), np.float64)
    gradient = array_at(output, (size,), np.float64)
    evaluate(table[_INNER], x, minibatch, inner_context, gradient)
    evaluate(table[_INNER], center, minibatch, inner_context, at_center)
    for i in range(size):
        gradient[i] += total[i] - at_center[i]
    return 0.0


class ControlVariates:
    """Gradient function of minibatches that is exact at a centering point.

    Parameters
    ----------
    inner : GradientFunctionLike
        Gradient function of a minibatch, without log-densities.
    size : int
        Length of a position.
    rare : RareRows, optional
        Rows that ``inner`` omits. They are added without control variates.

    Attributes
    ----------
    logp_grad : ComposedFunction
    of_others : ComposedFunction
        Estimate without the rare rows.
    center : ndarray, shape (size,)
        c.
    total : ndarray, shape (size,)
        Gradient over all rows at c.
    """

    def __init__(
        self, inner: GradientFunctionLike, size: int, rare: RareRows | None = None
    ) -> None:
        self._rare, self._others = rare, np.zeros(size)
        self.center, self.total = np.zeros(size), np.zeros(size)
        self._at_center = np.zeros(size)
        context = np.zeros(_FIRST_ORDER_LENGTH, dtype=np.int64)
        context[_INNER], context[_INNER_CONTEXT] = inner.address, inner.context.ctypes.data
        context[_N_INNER_CONTEXT], context[_SIZE] = inner.context.size, size
        context[_CENTER], context[_TOTAL] = self.center.ctypes.data, self._others.ctypes.data
        context[_AT_CENTER] = self._at_center.ctypes.data
        self.of_others = ComposedFunction(_first_order_estimate, context, [inner], self)
        self.logp_grad = self.of_others if rare is None else rare.added_to(self.of_others)

    def set_center(self, center: np.ndarray, total: np.ndarray) -> None:
        """Set the centering point and the gradient over all rows there."""
        self.center[:], self.total[:] = center, total
        self._others[:] = total
        if self._rare is not None:
            self._others -= self._rare.gradient(self.center)


# --- second order --------------------------------------------------------------------------------


@dataclass(frozen=True)
class SecondOrderSettings:
    """Constants of second-order control variates.

    Attributes
    ----------
    clipping_distance : float
        r_j in posterior standard deviations, along coordinates where the bound reduces the noise in
        the tails; infinite along the others. In single experiments, the standard deviation of log τ
        of a non-centered hierarchy was 1.05, 1.20 and 1.00 times that of NUTS with 2 (three seeds),
        and 1.24 and 1.33 times without a bound (two seeds).
    """

    clipping_distance: float = 2.0


SETTINGS = SecondOrderSettings()


@compiled
def clip_in_coordinates(
    away: np.ndarray,
    factor: np.ndarray,
    inverse: np.ndarray,
    clipping_distance: np.ndarray,
    beyond: np.ndarray,
) -> None:
    """Clip the whitened coordinates j of L⁻¹ a to ±r_j, in place.

    Parameters
    ----------
    away : ndarray, shape (size,)
        Vector whose first d coordinates are a.
    factor, inverse : ndarray, shape (d, d)
        L and L⁻¹.
    clipping_distance : ndarray, shape (d,)
        r_j.
    beyond : ndarray, shape (at least d,)
        Receives the amount by which each coordinate exceeds the bound.
    """
    d = len(factor)
    any_beyond = False
    for i in range(d):
        z, row = 0.0, inverse[i]
        for j in range(d):
            z += row[j] * away[j]
        beyond[i] = z - min(max(z, -clipping_distance[i]), clipping_distance[i])
        any_beyond |= beyond[i] != 0.0
    if not any_beyond:
        return
    for j in range(d):
        if beyond[j] != 0.0:
            for i in range(d):
                away[i] -= factor[i, j] * beyond[j]


@compiled
def clip_each(away: np.ndarray, sd: np.ndarray, clipping_distance: np.ndarray) -> None:
    """Clip the coordinates j of a vector to ±r_j standard deviations, in place.

    Parameters
    ----------
    away : ndarray, shape (size,)
        Vector whose first d coordinates are clipped.
    sd, clipping_distance : ndarray, shape (d,)
        Standard deviations, and r_j.
    """
    for j in range(sd.size):
        limit = clipping_distance[j] * sd[j]
        away[j] = min(max(away[j], -limit), limit)


@compiled_for_c
def _second_order_estimate(position: Any, minibatch: int, context: Any, output: Any) -> float:
    table = array_at(context, (_LENGTH,), np.int64)
    size, n_blocks, batch_size = table[_SIZE], table[_N_BLOCKS], table[_BATCH_SIZE]
    inner_context = array_at(table[_INNER_CONTEXT], (table[_N_INNER_CONTEXT],), np.int64)
    minibatch_context = array_at(
        table[_MINIBATCH_CONTEXT], (table[_N_MINIBATCH_CONTEXT],), np.int64
    )
    curvature_context = array_at(
        table[_CURVATURE_CONTEXT], (table[_N_CURVATURE_CONTEXT],), np.int64
    )
    blocks = array_at(table[_BLOCKS], (n_blocks, 3), np.int64)
    weights = array_at(table[_WEIGHTS], (3,), np.float64)
    center = array_at(table[_CENTER], (2 * size,), np.float64)  # followed by x − c
    total = array_at(table[_TOTAL], (size,), np.float64)
    common = array_at(table[_COMMON], (table[_N_COMMON],), np.int64)
    starts = array_at(table[_STARTS], (table[_N_VECTORS],), np.int64)
    strides = array_at(table[_STRIDES], (table[_N_VECTORS],), np.int64)
    rows = array_at(table[_ROWS], (common.size, size), np.float64)
    group_blocks = array_at(
        table[_GROUP_BLOCKS], (starts.size, starts.size, table[_N_GROUPS]), np.float64
    )
    # gradient, and Hessian times x − c
    at_center = array_at(table[_AT_CENTER], (2 * size,), np.float64)
    d = table[_N_EUCLIDEAN]
    clipping_distance = array_at(table[_CLIPPING_DISTANCE], (d,), np.float64)
    x = array_at(position, (size,), np.float64)
    away = center[size:]
    gradient = array_at(output, (size,), np.float64)
    evaluate(table[_INNER], x, minibatch, inner_context, gradient)
    for i in range(size):
        away[i] = x[i] - center[i]
    if table[_INVERSE]:
        factor = array_at(table[_FACTOR], (d, d), np.float64)
        inverse = array_at(table[_INVERSE], (d, d), np.float64)
        clip_in_coordinates(away, factor, inverse, clipping_distance, at_center)
    else:
        clip_each(away, array_at(table[_FACTOR], (d,), np.float64), clipping_distance)
    for i in range(n_blocks):
        first_row = minibatch_context[blocks[i, 1]] + minibatch * blocks[i, 2]
        curvature_context[blocks[i, 0]] = first_row
    weights[0] = weights[2]
    evaluate(table[_CURVATURE], center, batch_size, curvature_context, at_center)
    if table[_HAS_RARE]:
        rare = array_at(table[_RARE], (TABLE_LENGTH,), np.int64)
        first, count = rare_rows_in_minibatch(rare, minibatch)
        if count:
            rare_blocks = array_at(table[_RARE_BLOCKS], (n_blocks, 2), np.int64)
            of_rare = array_at(table[_OF_RARE], (2 * size,), np.float64)
            for i in range(n_blocks):
                curvature_context[blocks[i, 0]] = rare_blocks[i, 0] + first * rare_blocks[i, 1]
            weights[0] = -weights[2]
            evaluate(table[_CURVATURE], center, count, curvature_context, of_rare)
            for i in range(2 * size):
                at_center[i] += of_rare[i]
    for i in range(size):
        gradient[i] += total[i] - at_center[i] - at_center[size + i]
    product = at_center[:size]
    structured_product(rows, group_blocks, common, starts, strides, away, product)
    for i in range(size):
        gradient[i] += product[i]
    return 0.0


class SecondOrderControlVariates:
    """Gradient function of minibatches whose noise at x is of order (x − c)² near c.

    Parameters
    ----------
    curvature : RowCurvature
    n_euclidean : int
        d, number of Euclidean coordinates, which come first.
    rare : RareRows or None
        Rows that are added without control variates.

    Attributes
    ----------
    logp_grad : ComposedFunction
    of_others : ComposedFunction
        Estimate without the rare rows.
    center : ndarray, shape (size,)
        c.
    total : ndarray, shape (size,)
        Gradient of the terms of all rows at c; the other terms need no control variate.
    hessian : StructuredHessian
        H.
    clipping_distance : ndarray, shape (n_euclidean,)
        r_j, which may be modified in place.
    clips_whitened : bool
        Whether whitened coordinates are clipped, rather than those of the model.
    """

    def __init__(self, curvature: RowCurvature, n_euclidean: int, rare: RareRows | None) -> None:
        size, structure = curvature.size, curvature.structure
        self._curvature, self._rare = curvature, rare
        self._others, self._hessian_of_others = np.zeros(size), StructuredHessian(structure)
        self._rows = np.zeros((len(curvature.inputs), 2), dtype=np.int64)
        self._of_rare = np.zeros(2 * size)
        minibatch = curvature.minibatch if rare is None else rare.rest
        self._center_and_away, self._at_center = np.zeros(2 * size), np.zeros(2 * size)
        self.center, self.total = self._center_and_away[:size], np.zeros(size)
        self.hessian = StructuredHessian(structure)
        self.clipping_distance = np.full(n_euclidean, SETTINGS.clipping_distance)
        self.clips_whitened = False
        self._factor, self._inverse = np.ones(n_euclidean), np.empty(0)
        context = np.zeros(_LENGTH, dtype=np.int64)
        context[_INNER] = minibatch.address
        context[_INNER_CONTEXT] = minibatch.context.ctypes.data
        context[_N_INNER_CONTEXT] = minibatch.context.size
        context[_CURVATURE] = curvature.inner.address
        context[_CURVATURE_CONTEXT] = curvature.inner.context.ctypes.data
        context[_N_CURVATURE_CONTEXT] = curvature.inner.context.size
        context[_SIZE] = size
        context[_N_BLOCKS] = len(curvature.inputs)
        context[_BATCH_SIZE] = curvature.batch_size
        context[_BLOCKS] = curvature.inputs.ctypes.data
        context[_WEIGHTS] = curvature.weights.ctypes.data
        context[_CENTER] = self._center_and_away.ctypes.data
        context[_TOTAL] = self._others.ctypes.data
        context[_ROWS] = self._hessian_of_others.rows.ctypes.data
        context[_AT_CENTER] = self._at_center.ctypes.data
        context[_FACTOR] = self._factor.ctypes.data
        context[_N_EUCLIDEAN] = n_euclidean
        context[_CLIPPING_DISTANCE] = self.clipping_distance.ctypes.data
        context[_MINIBATCH_CONTEXT] = curvature.minibatch.context.ctypes.data
        context[_N_MINIBATCH_CONTEXT] = curvature.minibatch.context.size
        context[_HAS_RARE] = rare is not None
        context[_RARE] = 0 if rare is None else rare.table.ctypes.data
        context[_RARE_BLOCKS] = self._rows.ctypes.data
        context[_OF_RARE] = self._of_rare.ctypes.data
        context[_GROUP_BLOCKS] = self._hessian_of_others.blocks.ctypes.data
        context[_COMMON] = structure.common.ctypes.data
        context[_N_COMMON] = len(structure.common)
        context[_STARTS] = structure.starts.ctypes.data
        context[_N_VECTORS] = len(structure.starts)
        context[_N_GROUPS] = structure.n_groups
        context[_STRIDES] = structure.strides.ctypes.data
        self.of_others = ComposedFunction(
            _second_order_estimate, context, [minibatch, curvature.inner], (self, curvature)
        )
        self.logp_grad = self.of_others if rare is None else rare.added_to(self.of_others)

    def set_center(self, center: np.ndarray, total: np.ndarray, hessian: StructuredHessian) -> None:
        """Set the centering point, and gradient and Hessian of the terms of all rows there."""
        self.center[:], self.total[:], self.hessian.values[:] = center, total, hessian.values
        self._others[:], self._hessian_of_others.values[:] = total, hessian.values
        if self._rare is not None and len(self._rare):
            self._others -= self._rare.gradient(self.center)
            of_rare = self._rare.hessian(self.center, self._curvature)
            self._hessian_of_others.values -= of_rare.values
            for i, array in enumerate(self._rare.arrays.values()):
                self._rows[i] = array.ctypes.data, array.strides[0]

    def set_metric(self, metric: Metric) -> None:
        """Set the metric in whose coordinates x − c is clipped."""
        self.clips_whitened = metric.is_dense and not self._curvature.structure.n_groups
        context = self.of_others.context
        if self.clips_whitened:
            self._factor = np.ascontiguousarray(metric.factor)
            self._inverse = np.linalg.inv(self._factor)
            context[_INVERSE] = self._inverse.ctypes.data
        else:
            self._factor, context[_INVERSE] = metric.sd, 0
        context[_FACTOR] = self._factor.ctypes.data
