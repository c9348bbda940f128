r"""Nodes for integrals over one coordinate of a direction.

A coordinate of a uniform direction in n dimensions is the hyperbolic tangent of a variable x with
density proportional to :math:`\operatorname{sech}^{n-1} x`. Functions of its square are even and
analytic in x. With x a hyperbolic sine in turn, the trapezoidal rule needs few nodes whether they
are peaked at zero or as wide as the sphere.
"""

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import disconnected_grad
from pytensor.tensor.variable import TensorVariable

REACH = 4.0
"""The last node is at the hyperbolic sine of this, in units of a small scale."""

NEWTON_STEPS = 6


def line_nodes(
    power: Any, pull: TensorVariable, density: tuple[int, float], degree: int = 1
) -> tuple[TensorVariable, TensorVariable]:
    r"""Place nodes for :math:`\operatorname{sech}^m(x) \exp(c \operatorname{sech}^k x)` on x > 0.

    Parameters
    ----------
    power : int or scalar TensorVariable
        m, at least 1.
    pull : TensorVariable, shape (...)
        c, at least 0.
    density : tuple of int and float
        How many nodes, and how far the logarithm of the integrand has fallen at the last.
    degree : int
        k.

    Returns
    -------
    log_sech : TensorVariable, shape (..., nodes)
        Of x at the nodes, none of them at zero.
    log_weight : TensorVariable, shape (..., nodes)
        With it, the mean of an even function of x, whose density is that of the power of sech, is a
        sum.

    Notes
    -----
    Where the nodes are has no influence but on the error, and is a constant for gradients.

    Examples
    --------
    The mean of the square of a coordinate is one over the dimension:

    >>> import pytensor.tensor as pt
    >>> from pymc_geodesic.ops.line_nodes import line_nodes
    >>> log_sech, log_weight = line_nodes(4, pt.as_tensor(0.0), (40, 38.0))
    >>> square = pt.sum(pt.exp(log_weight) * (1 - pt.exp(2 * log_sech)))
    >>> round(float(square.eval(mode="FAST_COMPILE")), 12)
    0.2
    """
    count, drop = density
    power = pt.as_tensor(power).astype("float64")
    fallen = pt.zeros_like(pull)  # log cosh x at the last node, by Newton from below
    for _ in range(NEWTON_STEPS):
        left = pull * pt.exp(-degree * fallen)
        fallen = fallen + (drop - power * fallen - pull + left) / (power + degree * left)
    last = fallen + pt.log1p(pt.sqrt(-pt.expm1(-2.0 * fallen)))
    scale = disconnected_grad(last)[..., None] / np.sinh(REACH)
    v = REACH * (np.arange(count) + 0.5) / count
    x = scale * np.sinh(v)
    log_sech = np.log(2.0) - x - pt.log1p(pt.exp(-2.0 * x))
    both_sides = np.log(2.0 * REACH / count * np.cosh(v))
    log_mass = 0.5 * np.log(np.pi) + pt.gammaln(0.5 * power) - pt.gammaln(0.5 * (power + 1.0))
    return log_sech, pt.log(scale) + both_sides + power * log_sech - log_mass
