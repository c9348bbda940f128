r"""A gradient field in the coordinates of a metric.

With x = c + L z the gradient in z is Lᵀ ∇log π(x), and the log-density changes by a constant. The
field is made of another field by its address, so that neither kernels nor densities know of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray

from pymc_geodesic.fields import ComposedField, FieldLike, array_at, evaluate
from pymc_geodesic.jit import compiled
from pymc_geodesic.tuning.metric import Metric

__all__ = ["ChangeOfCoordinates"]

_DIAGONAL, _DENSE = 0, 1
_KIND = 6


@compiled
def _to_position(
    kind: int, centre: np.ndarray, factor: np.ndarray, z: np.ndarray, x: np.ndarray
) -> None:
    """x ← c + L z in the first coordinates, x ← z in the others."""
    d = centre.size
    for i in range(d, z.size):
        x[i] = z[i]
    for i in range(d):
        if kind == _DENSE:
            total = 0.0
            row = factor[i * d : (i + 1) * d]
            for j in range(d):
                total += row[j] * z[j]
            x[i] = centre[i] + total
        else:
            x[i] = centre[i] + factor[i] * z[i]


@compiled
def _to_gradient(
    kind: int, d: int, factor: np.ndarray, gradient: np.ndarray, output: np.ndarray
) -> None:
    """output ← Lᵀ g in the first coordinates, output ← g behind them."""
    for i in range(d, output.size):
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


@compiled
def _in_new_coordinates(position: Any, argument: int, context: Any, output: Any) -> float:
    table = carray(context, (10,))
    size, n_outputs, d, kind = table[3], table[4], table[5], table[6]
    centre = array_at(table[7], (d,), np.float64)
    factor = array_at(table[8], (d * d if kind == _DENSE else d,), np.float64)
    scratch = array_at(table[9], (size + n_outputs,), np.float64)
    x, gradient = scratch[:size], scratch[size:]
    _to_position(kind, centre, factor, carray(position, (size,)), x)
    inner_context = array_at(table[1], (table[2],), np.int64)
    value = evaluate(table[0], x, argument, inner_context, gradient)
    _to_gradient(kind, d, factor, gradient, carray(output, (n_outputs,)))
    return value


class ChangeOfCoordinates:
    """A field in the coordinates z of x = c + L z.

    Parameters
    ----------
    inner : FieldLike
        Field in the coordinates x.
    size : int
        Length of a position, of which the first `n_euclidean` change and the others stay.
    n_euclidean : int
    n_values : int
        How many numbers the field writes behind its gradient.

    Attributes
    ----------
    field : ComposedField
    """

    def __init__(
        self, inner: FieldLike, size: int, n_euclidean: int, *, n_values: int = 0
    ) -> None:
        self._centre = np.zeros(n_euclidean)
        self._factor = np.ones(n_euclidean)
        self._dense: np.ndarray | None = None
        self._scratch = np.zeros(2 * size + n_values)
        context = np.array(
            [
                inner.address,
                inner.context.ctypes.data,
                inner.context.size,
                size,
                size + n_values,
                n_euclidean,
                _DIAGONAL,
                self._centre.ctypes.data,
                self._factor.ctypes.data,
                self._scratch.ctypes.data,
            ],
            dtype=np.int64,
        )
        self.field = ComposedField(_in_new_coordinates, context, [inner], self)

    def use(self, metric: Metric) -> None:
        """Take over a metric; its arrays are copied."""
        context = self.field.context
        self._centre[:] = metric.centre
        if metric.is_dense:
            if self._dense is None:
                self._dense = np.empty(metric.factor.shape)
            self._dense[:] = metric.factor
            context[_KIND], context[_KIND + 2] = _DENSE, self._dense.ctypes.data
        else:
            self._factor[:] = metric.factor
            context[_KIND], context[_KIND + 2] = _DIAGONAL, self._factor.ctypes.data
