r"""Change of coordinates of a gradient function, from those of the model to whitened ones.

With x = c + L z the gradient in z is Lᵀ ∇log π(x), and the log-density changes by a constant. On a
compact manifold the gradient is multiplied by the length scale s, the factor by which the kernel
multiplies times. The inner function is called by its address.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pymc_geodesic.gradients.metric import LowRank, Metric
from pymc_geodesic.runtime.gradient_functions import (
    ComposedFunction,
    GradientFunctionLike,
    array_at,
    evaluate,
)
from pymc_geodesic.runtime.jit import compiled_for_c, part

_DIAGONAL, _DENSE, _LOW_RANK = 0, 1, 2

# entries of the context of `_in_whitened_coordinates`: addresses and lengths
(
    _INNER,
    _INNER_CONTEXT,
    _N_INNER_CONTEXT,
    _SIZE,
    _N_OUTPUTS,
    _N_EUCLIDEAN,
    _KIND,
    _CENTER,
    _FACTOR,
    _SCRATCH,
    _LENGTHS,
    _N_DIRECTIONS,
    _DIRECTIONS,
    _STRETCH,
    _LENGTH,
) = range(15)


@part
def _stretch(directions: np.ndarray, stretch: np.ndarray, vector: np.ndarray) -> None:
    """Add U (S − I) Uᵀ v to v; the rows of ``directions`` are the columns of U."""
    for k in range(stretch.size):
        direction = directions[k]
        along = 0.0
        for i in range(direction.size):
            along += direction[i] * vector[i]
        along *= stretch[k] - 1.0
        for i in range(direction.size):
            vector[i] += along * direction[i]


@part
def _to_position(
    kind: int,
    center: np.ndarray,
    factor: np.ndarray,
    directions: np.ndarray,
    stretch: np.ndarray,
    z: np.ndarray,
    x: np.ndarray,
) -> None:
    """Set x to c + L z in the Euclidean coordinates, and to z in the others."""
    d = center.size
    for i in range(z.size):
        x[i] = z[i]
    if kind == _LOW_RANK:
        _stretch(directions, stretch, x[:d])
    for i in range(d):
        if kind == _DENSE:
            total = 0.0
            row = factor[i * d : (i + 1) * d]
            for j in range(d):
                total += row[j] * z[j]
            x[i] = center[i] + total
        else:
            x[i] = center[i] + factor[i] * x[i]


@part
def _to_gradient(
    kind: int,
    d: int,
    factor: np.ndarray,
    directions: np.ndarray,
    stretch: np.ndarray,
    lengths: np.ndarray,
    gradient: np.ndarray,
    output: np.ndarray,
) -> None:
    """Set the output to Lᵀ g (Euclidean coordinates), s g (others) and the log-densities."""
    for i in range(lengths.size):
        output[d + i] = lengths[i] * gradient[d + i]
    for i in range(d + lengths.size, output.size):
        output[i] = gradient[i]
    if kind == _DENSE:
        output[:d] = 0.0
        for i in range(d):
            row = factor[i * d : (i + 1) * d]
            for j in range(d):
                output[j] += row[j] * gradient[i]
    else:
        for i in range(d):
            output[i] = factor[i] * gradient[i]
    if kind == _LOW_RANK:
        _stretch(directions, stretch, output[:d])


@compiled_for_c
def _in_whitened_coordinates(position: Any, minibatch: int, context: Any, output: Any) -> float:
    table = array_at(context, (_LENGTH,), np.int64)
    size, n_outputs, d, kind = table[_SIZE], table[_N_OUTPUTS], table[_N_EUCLIDEAN], table[_KIND]
    center = array_at(table[_CENTER], (d,), np.float64)
    factor = array_at(table[_FACTOR], (d * d if kind == _DENSE else d,), np.float64)
    directions = array_at(table[_DIRECTIONS], (table[_N_DIRECTIONS], d), np.float64)
    stretch = array_at(table[_STRETCH], (table[_N_DIRECTIONS],), np.float64)
    scratch = array_at(table[_SCRATCH], (size + n_outputs,), np.float64)
    x, gradient = scratch[:size], scratch[size:]
    _to_position(
        kind, center, factor, directions, stretch, array_at(position, (size,), np.float64), x
    )
    inner_context = array_at(table[_INNER_CONTEXT], (table[_N_INNER_CONTEXT],), np.int64)
    value = evaluate(table[_INNER], x, minibatch, inner_context, gradient)
    lengths = array_at(table[_LENGTHS], (size - d,), np.float64)
    out = array_at(output, (n_outputs,), np.float64)
    _to_gradient(kind, d, factor, directions, stretch, lengths, gradient, out)
    return value


class ChangeOfCoordinates:
    """Gradient function in the coordinates z of x = c + L z.

    Parameters
    ----------
    inner : GradientFunctionLike
        Gradient function in the coordinates x.
    size : int
        Length of a position, Euclidean coordinates first.
    widths : sequence of int
        Number of coordinates of each variable that is not Euclidean.
    n_values : int
        Number of log-densities that follow the gradient in the output of the function.

    Attributes
    ----------
    logp_grad : ComposedFunction
    """

    def __init__(
        self,
        inner: GradientFunctionLike,
        size: int,
        widths: Sequence[int],
        *,
        n_values: int = 0,
    ) -> None:
        n_euclidean = size - sum(widths)
        self._widths = list(widths)
        self._lengths = np.ones(max(sum(widths), 1))
        self._center = np.zeros(n_euclidean)
        self._factor = np.ones(n_euclidean)
        self._dense: np.ndarray | None = None
        self._directions, self._stretch = np.empty((1, n_euclidean)), np.empty(1)
        self._scratch = np.zeros(2 * size + n_values)
        context = np.zeros(_LENGTH, dtype=np.int64)
        context[_INNER], context[_INNER_CONTEXT] = inner.address, inner.context.ctypes.data
        context[_N_INNER_CONTEXT] = inner.context.size
        context[_SIZE], context[_N_OUTPUTS] = size, size + n_values
        context[_N_EUCLIDEAN], context[_KIND] = n_euclidean, _DIAGONAL
        context[_CENTER], context[_FACTOR] = self._center.ctypes.data, self._factor.ctypes.data
        context[_SCRATCH] = self._scratch.ctypes.data
        context[_LENGTHS] = self._lengths.ctypes.data
        context[_DIRECTIONS] = self._directions.ctypes.data
        context[_STRETCH] = self._stretch.ctypes.data
        self.logp_grad = ComposedFunction(_in_whitened_coordinates, context, [inner], self)

    def set_metric(self, metric: Metric) -> None:
        """Set the metric; its arrays are copied."""
        context = self.logp_grad.context
        self._center[:] = metric.center
        if self._widths:
            self._lengths[:] = np.repeat(metric.lengths, self._widths)
        factor = metric.factor
        if isinstance(factor, LowRank):
            self._factor[:] = factor.scale
            self._directions = np.ascontiguousarray(factor.directions.T)
            self._stretch = np.array(factor.stretch)
            context[_KIND], context[_FACTOR] = _LOW_RANK, self._factor.ctypes.data
            context[_N_DIRECTIONS] = self._stretch.size
            context[_DIRECTIONS] = self._directions.ctypes.data
            context[_STRETCH] = self._stretch.ctypes.data
        elif metric.is_dense:
            if self._dense is None:
                self._dense = np.empty(factor.shape)
            self._dense[:] = factor
            context[_KIND], context[_FACTOR] = _DENSE, self._dense.ctypes.data
        else:
            self._factor[:] = factor
            context[_KIND], context[_FACTOR] = _DIAGONAL, self._factor.ctypes.data
