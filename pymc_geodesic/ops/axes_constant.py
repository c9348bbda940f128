r"""The constant of the matrix Bingham distribution in two and three dimensions.

Its mean over uniform orthogonal matrices, :math:`E \exp\operatorname{tr}(B X^\top A X)`, depends
on the eigenvalues :math:`a_1 \ge a_2 \ge a_3` of A and the weights :math:`b_1 \ge b_2 \ge b_3`,
among them zeros for columns that frames lack. Given the column y of :math:`b_1`, the other two turn
in the plane across it, where A has eigenvalues at a distance Δ: with
:math:`\delta = (b_2 - b_3)/2` and :math:`b = (b_2 + b_3)/2`,

.. math::

    E \exp\operatorname{tr}(B X^\top A X) = e^{\sum_i a_i b_i}\,
        E_y \exp\{-(b_1 - b)(a_1 - y^\top A y) - \delta (a_2 - a_3)\}\, I_0(\delta \Delta) .

The expectation over the sphere is two sums over nodes. (A, B) and (−A, −B) are the same; the
one whose first weight is further from the second than that from the third has the narrower peak.
In two dimensions nothing is left to integrate.
"""

import pytensor.tensor as pt
from pytensor.gradient import disconnected_grad
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.ops.bessel_ops import log_vmf_normalizer
from pymc_geodesic.ops.line_nodes import line_nodes

MOST_ROWS = 3
"""Dimensions in which the constant is known for several columns."""

DENSITY = 40, 38.0

TINY = 1e-100
"""Below a square, which has a slope of zero at zero."""


def log_axes_integral(A: TensorVariable, b: TensorVariable, n: int, p: int) -> TensorVariable:
    r"""Return :math:`\log {}_0F_0(A, B)`, differentiable in A and in b.

    Parameters
    ----------
    A : TensorVariable, shape (..., n, n)
        Symmetric.
    b : TensorVariable, shape (..., p)
        Weights of the columns.
    n, p : int
        Two or three, and p at most n.

    Returns
    -------
    TensorVariable of float64, shape (...)
        Error below 1e-11, relative where the result is large.

    References
    ----------
    Muirhead (1982), *Aspects of multivariate statistical theory*, section 7.3, for the function.

    Examples
    --------
    >>> import numpy as np
    >>> import pytensor.tensor as pt
    >>> from pymc_geodesic.ops.axes_constant import log_axes_integral
    >>> log = log_axes_integral(pt.as_tensor(np.diag([3.0, 1.0])), pt.as_tensor([1.0, -1.0]), 2, 2)
    >>> round(float(np.exp(log.eval(mode="FAST_COMPILE")) / np.i0(2.0)), 12)
    1.0
    """
    A, b = A.astype("float64"), b.astype("float64")
    a = _eigenvalues(A)
    values = [a[..., n - 1 - i] for i in range(n)]
    if p < n:
        missing = pt.zeros((*b.shape[:-1], n - p))
        b = pt.concatenate([b, missing], axis=-1)
    rising = pt.sort(b, axis=-1)
    weights = [rising[..., n - 1 - i] for i in range(n)]
    largest = sum(value * weight for value, weight in zip(values, weights, strict=True))
    apart = [values[i] - values[i + 1] for i in range(n - 1)]
    steps = [weights[i] - weights[i + 1] for i in range(n - 1)]
    if n == 2:
        half = 0.5 * apart[0] * steps[0]
        return largest - half + _log_bessel(half)
    return largest + _of_three_rows(*pt.broadcast_arrays(*apart, *steps))


def _eigenvalues(A: TensorVariable) -> TensorVariable:
    """Return the eigenvalues, smallest first, with slopes where some are equal too."""
    axes = disconnected_grad(pt.linalg.eigh(A)[1])
    return pt.sum(axes * (A @ axes), axis=-2)


def _log_bessel(x: TensorVariable) -> TensorVariable:
    """Return log I₀."""
    return log_vmf_normalizer(2, 0.0) - log_vmf_normalizer(2, x)


def _of_three_rows(
    upper: TensorVariable, lower: TensorVariable, first: TensorVariable, second: TensorVariable
) -> TensorVariable:
    """Return the logarithm for eigenvalues and weights that are so far apart, without its peak."""
    turned = second > first
    first, second = pt.where(turned, second, first), pt.where(turned, first, second)
    upper, lower = pt.where(turned, lower, upper), pt.where(turned, upper, lower)
    of_angle, angle_weight = line_nodes(1, first * upper, DENSITY, degree=2)
    cosine = pt.exp(2.0 * of_angle)  # squared, of the angle from the first axis to the second
    nearest = first[..., None] * (upper[..., None] * cosine + lower[..., None])
    of_height, height_weight = line_nodes(2, nearest, DENSITY, degree=2)
    radius, height = pt.exp(2.0 * of_height), -pt.expm1(2.0 * of_height)
    on_first = radius * cosine[..., None]
    on_second = radius * -pt.expm1(2.0 * of_angle)[..., None]
    upper, lower = upper[..., None, None], lower[..., None, None]
    first, second = first[..., None, None], second[..., None, None]
    loss = upper * (on_second + height) + lower * height
    unlike = (upper + lower) * (on_second + height) - lower * (on_first + height)
    square = pt.sqr(unlike) + 4.0 * (upper + lower) * lower * on_first * on_second
    turning = _log_bessel(0.5 * second * pt.sqrt(square + TINY)) - 0.5 * second * lower
    terms = turning - (first + 0.5 * second) * loss + height_weight + angle_weight[..., None]
    return pt.logsumexp(terms, axis=(-2, -1))
