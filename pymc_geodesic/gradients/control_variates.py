r"""Minibatch gradients with first-order control variates.

At the centering point c the gradient over all rows is known, and a minibatch estimates only the
difference,

.. math::

    \hat g(x) = \nabla \log \pi(c) + \hat g_b(x) - \hat g_b(c) ,

with the same minibatch b in both estimates. Terms that do not depend on the rows are exact in both,
so that the estimate contains them exactly as at x. In units of posterior standard deviations the
noise of a smooth likelihood decreases from about N/n to |x − c|² d/n, independent of the number of
rows.

References
----------
Baker, Fearnhead, Fox, Nemeth (2019), Control variates for stochastic gradient MCMC, section 3.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pymc_geodesic.runtime.gradient_functions import (
    ComposedFunction,
    GradientFunctionLike,
    array_at,
    evaluate,
)
from pymc_geodesic.runtime.jit import compiled_for_c


@compiled_for_c
def _first_order_estimate(position: Any, minibatch: int, context: Any, output: Any) -> float:
    table = array_at(context, (7,), np.int64)
    size = table[3]
    center = array_at(table[4], (size,), np.float64)
    total = array_at(table[5], (size,), np.float64)
    at_center = array_at(table[6], (size,), np.float64)
    inner_context = array_at(table[1], (table[2],), np.int64)
    gradient = array_at(output, (size,), np.float64)
    evaluate(table[0], array_at(position, (size,), np.float64), minibatch, inner_context, gradient)
    evaluate(table[0], center, minibatch, inner_context, at_center)
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

    Attributes
    ----------
    logp_grad : ComposedFunction
    center : ndarray, shape (size,)
        c.
    total : ndarray, shape (size,)
        Gradient over all rows at c.
    """

    def __init__(self, inner: GradientFunctionLike, size: int) -> None:
        self.center, self.total = np.zeros(size), np.zeros(size)
        self._at_center = np.zeros(size)
        context = np.array(
            [
                inner.address,
                inner.context.ctypes.data,
                inner.context.size,
                size,
                self.center.ctypes.data,
                self.total.ctypes.data,
                self._at_center.ctypes.data,
            ],
            dtype=np.int64,
        )
        self.logp_grad = ComposedFunction(_first_order_estimate, context, [inner], self)

    def set_center(self, center: np.ndarray, total: np.ndarray) -> None:
        """Set the centering point and the gradient over all rows there."""
        self.center[:], self.total[:] = center, total
