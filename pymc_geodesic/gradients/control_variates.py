r"""Gradient estimates with control variates.

Around an anchor c, where the gradient of all rows is known, a minibatch estimates only the
difference,

.. math::

    \hat g(x) = \nabla \log \pi(c) + \hat g_b(x) - \hat g_b(c) ,

with the same minibatch b in both estimates. What does not depend on rows is exact in either, so
that it stands in the sum exactly as at x. In posterior standard deviations the noise of a smooth
likelihood falls from about N/n to |x − c|² d/n: independent of the number of rows.

References
----------
Baker, Fearnhead, Fox, Nemeth (2019), Control variates for stochastic gradient MCMC, section 3.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pymc_geodesic.runtime.fields import ComposedField, FieldLike, array_at, evaluate
from pymc_geodesic.runtime.jit import compiled_for_c


@compiled_for_c
def _difference(position: Any, argument: int, context: Any, output: Any) -> float:
    table = array_at(context, (7,), np.int64)
    size = table[3]
    anchor = array_at(table[4], (size,), np.float64)
    total = array_at(table[5], (size,), np.float64)
    there = array_at(table[6], (size,), np.float64)
    inner_context = array_at(table[1], (table[2],), np.int64)
    gradient = array_at(output, (size,), np.float64)
    evaluate(table[0], array_at(position, (size,), np.float64), argument, inner_context, gradient)
    evaluate(table[0], anchor, argument, inner_context, there)
    for i in range(size):
        gradient[i] += total[i] - there[i]
    return 0.0


class ControlVariates:
    """A field of minibatch gradients that is exact at an anchor.

    Parameters
    ----------
    inner : FieldLike
        Field of minibatch gradients, without values.
    size : int
        Length of a position.

    Attributes
    ----------
    field : ComposedField
    anchor, total : ndarray, shape (size,)
        c, and the gradient of all rows there.
    """

    def __init__(self, inner: FieldLike, size: int) -> None:
        self.anchor, self.total = np.zeros(size), np.zeros(size)
        self._there = np.zeros(size)
        context = np.array(
            [
                inner.address,
                inner.context.ctypes.data,
                inner.context.size,
                size,
                self.anchor.ctypes.data,
                self.total.ctypes.data,
                self._there.ctypes.data,
            ],
            dtype=np.int64,
        )
        self.field = ComposedField(_difference, context, [inner], self)

    def use(self, anchor: np.ndarray, total: np.ndarray) -> None:
        """Take over an anchor and the gradient of all rows there."""
        self.anchor[:], self.total[:] = anchor, total
