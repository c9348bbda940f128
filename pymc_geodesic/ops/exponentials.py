"""Exponential, sigmoid and softplus functions of arrays in Numba mode, by vector instructions.

PyTensor's loops call the exponential function of the C library for each element, and fuse it with
what follows, so that the compiler does not vectorize the loop. Here each of the three functions has
a loop of its own, of polynomials and a power of 2:

- exp x = 2ᵏ exp r, where k is the integer nearest to x / log 2, so that |r| ≤ (log 2) / 2,
- sigmoid x = 1 / (1 + exp(−x)),
- softplus x = max(x, 0) + log(1 + t), where t = exp(−|x|) and log(1 + t) = 2 artanh(t / (2 + t)).

The polynomials are Taylor series with a remainder below the rounding error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.compile.mode import Mode
from pytensor.graph import node_rewriter
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.graph.rewriting.basic import dfs_rewriter
from pytensor.scalar.math import Sigmoid, Softplus
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.variable import TensorVariable
from scipy.special import expit

from pymc_geodesic.ops.gamma import BEFORE_FUSION
from pymc_geodesic.ops.numba_backend import LoopOp
from pymc_geodesic.runtime.jit import part

_SHORTEST = 16
"""Length of the shortest vector with a loop of its own."""

_LOG_2_HIGH, _LOG_2_LOW = 0.6931471803691238, 1.9082149292705877e-10
"""log 2 as the sum of a number with 32 bits, whose product with k is exact, and a remainder."""

_SMALLEST, _LARGEST = -708.0, 709.0
"""Arguments below which the exponential function is 0, and above which it is infinite."""


@part(reorders_sums=False)
def exponential(x: float) -> float:
    """Return exp x, with a relative error below 4e-16; 0 below −708 and infinity above 709."""
    k = np.floor(x * (1.0 / math.log(2.0)) + 0.5)
    r = (x - k * _LOG_2_HIGH) - k * _LOG_2_LOW
    # Σ rⁿ / n!
    total = 1 / 39916800 + r * (1 / 479001600 + r / 6227020800)
    total = 1 / 40320 + r * (1 / 362880 + r * (1 / 3628800 + r * total))
    total = 1 / 120 + r * (1 / 720 + r * (1 / 5040 + r * total))
    total = 1 + r * (1 + r * (1 / 2 + r * (1 / 6 + r * (1 / 24 + r * total))))
    exponent = np.int64(np.int32(k) + 1023) << 52
    result = total * np.int64(exponent).view(np.float64)
    result = result if x >= _SMALLEST else 0.0
    result = result if x <= _LARGEST else math.inf
    return result if x == x else x


@part(reorders_sums=False)
def sigmoid(x: float) -> float:
    """Return 1 / (1 + exp(−x))."""
    return 1.0 / (1.0 + exponential(-x))


@part(reorders_sums=False)
def softplus(x: float) -> float:
    """Return log(1 + exp x)."""
    t = exponential(-abs(x))
    s = t / (2.0 + t)
    u = s * s
    # artanh(s) / s = Σ uⁿ / (2n + 1), u ≤ 1/9
    total = 1 / 25 + u * (1 / 27 + u * (1 / 29 + u * (1 / 31 + u / 33)))
    total = 1 / 15 + u * (1 / 17 + u * (1 / 19 + u * (1 / 21 + u * (1 / 23 + u * total))))
    total = 1 / 5 + u * (1 / 7 + u * (1 / 9 + u * (1 / 11 + u * (1 / 13 + u * total))))
    return max(x, 0.0) + 2.0 * s * (1 + u * (1 / 3 + u * total))


class _Exponential(LoopOp, Op):
    """One of the functions of an array of float64.

    Parameters
    ----------
    name : {"exp", "sigmoid", "softplus"}
    """

    __props__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def make_node(self, x: TensorVariable) -> Apply:
        """Build the node."""
        return Apply(self, [x], [pt.tensor(dtype="float64", shape=x.type.shape)])

    def infer_shape(self, node: Apply, shapes: list) -> list:
        """Return the shape of the array."""
        return shapes

    def perform(self, node: Apply, inputs: Any, outputs: Any) -> None:
        """Evaluate in NumPy."""
        outputs[0][0] = _IN_NUMPY[self.name](inputs[0])

    def numba_loop(self, node: Apply, njit: Any) -> Callable[..., Any]:
        """Return the loop over all elements."""
        function = _IN_NUMBA[self.name]

        @njit
        def loop(x):  # type: ignore[no-untyped-def]
            result = np.empty(x.shape)
            elements, results = np.ascontiguousarray(x).reshape(-1), result.reshape(-1)
            for i in range(elements.size):
                results[i] = function(elements[i])
            return result

        return loop


_IN_NUMBA = {"exp": exponential, "sigmoid": sigmoid, "softplus": softplus}
_IN_NUMPY = {"exp": np.exp, "sigmoid": expit, "softplus": lambda x: np.logaddexp(0.0, x)}
_NAMES = {ps.Exp: "exp", Sigmoid: "sigmoid", Softplus: "softplus"}


@node_rewriter([Elemwise])
def _own_loop(fgraph: Any, node: Apply) -> list[TensorVariable] | None:
    """Replace the function of an array that is not known to be short."""
    name = _NAMES.get(type(node.op.scalar_op))
    if name is None:
        return None
    (x,) = node.inputs
    lengths = [length for length in x.type.shape if length is not None]
    is_short = len(lengths) == x.ndim and math.prod(lengths) < _SHORTEST
    if is_short or x.type.dtype != "float64":
        return None
    return [_Exponential(name)(x)]


def with_vectorized_exponentials(mode: Mode) -> Mode:
    """Return a Numba mode in which exponential, sigmoid and softplus functions are vectorized.

    Parameters
    ----------
    mode : pytensor.compile.mode.Mode

    Examples
    --------
    >>> import numpy as np
    >>> import pytensor
    >>> import pytensor.tensor as pt
    >>> from pymc_geodesic.ops.exponentials import with_vectorized_exponentials
    >>> x = pt.vector("x", dtype="float64")
    >>> mode = with_vectorized_exponentials(pytensor.compile.mode.get_mode("NUMBA"))
    >>> pytensor.function([x], pt.exp(x), mode=mode)(np.array([0.0, 1.0]))
    array([1.        , 2.71828183])
    """
    return mode.register((dfs_rewriter(_own_loop), BEFORE_FUSION))
