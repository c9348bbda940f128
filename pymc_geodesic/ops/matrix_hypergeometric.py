r"""Hypergeometric functions of matrix argument: ₀F₁ of one matrix, ₀F₀ of two.

They are the constants of the matrix von Mises–Fisher and matrix Bingham distributions, for PyTensor
variables.

The mean of the matrix von Mises–Fisher exponential over uniform frames,
:math:`E \exp\operatorname{tr}(F^\top X) = {}_0F_1(\tfrac n2; \tfrac14 F^\top F)`, depends on the
singular values d of F alone. With :math:`\Omega_m` that function for a single column in m
dimensions, an inverse of von Mises–Fisher constants, and :math:`c_n` for several, conditioning on
the first column gives

.. math::

    c_n(d_1, d_2) &= E\, \Omega_{n-1}(d_1 s)\, \Omega_{n-1}(d_2 s), \qquad s^2 = 1 - u^2, \\
    c_n(d_1, d_2, d_3) &= E\, \Omega_{n-2}(d_1 s)\, c_{n-1}(\sigma_1, \sigma_2), \qquad
        s^2 = 1 - u^2 - v^2 ,

with u and v two coordinates of a uniform direction in n dimensions, and σ the singular values of
:math:`\operatorname{diag}(d_2, d_3)\,(I - (u, v)^\top (u, v))^{1/2}`. They are integrated on the
nodes of `line_nodes`; all terms are positive. The functions of more columns are composed of the
logarithms of those of three, two and one,

.. math::

    \log c_n \approx S_3 - (p - 3) S_2 + \tbinom{p-2}{2} S_1 + r ,

with :math:`S_k` the sum over all sets of k columns. The remainder r, the interaction of four and
more columns, is known for large d and taken to be proportional to the interaction of three.

The mean of the matrix Bingham exponential over uniform orthogonal matrices,
:math:`E \exp\operatorname{tr}(B X^\top A X) = {}_0F_0(A, B)`, depends on the eigenvalues
:math:`a_1 \ge a_2 \ge a_3` of A and the weights :math:`b_1 \ge b_2 \ge b_3`, with zeros for the
columns that a frame lacks. Given the column y of :math:`b_1`, the other two rotate in the plane
orthogonal to it, where the eigenvalues of A differ by Δ: with :math:`\delta = (b_2 - b_3)/2` and
:math:`b = (b_2 + b_3)/2`,

.. math::

    E \exp\operatorname{tr}(B X^\top A X) = e^{\sum_i a_i b_i}\,
        E_y \exp\{-(b_1 - b)(a_1 - y^\top A y) - \delta (a_2 - a_3)\}\, I_0(\delta \Delta) .

The expectation over the sphere is a double sum over nodes. (A, B) and (−A, −B) have the same value;
the one whose first weight is further from the second than the second from the third has the
narrower peak. In two dimensions the function is a Bessel function.
"""

import itertools
from functools import reduce
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import disconnected_grad
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.ops.bessel_ops import log_vmf_normalizer

REACH = 4.0
"""The last node is at sinh(REACH) times the scale of the integrand."""

NEWTON_STEPS = 6

FINE = 40, 38.0
"""Number of nodes, and drop of the logarithm of the integrand at the last node."""

MEDIUM, COARSE = (16, 26.0), (14, 22.0)
"""The same for triple integrals, for three columns and for more."""

TINY = 1e-100
"""Added to squares under a square root, whose derivative is then zero at zero."""

MAX_ROWS = 3
"""Maximum dimension for which the constant of several columns is computed."""


def line_nodes(
    power: Any, coefficient: TensorVariable, density: tuple[int, float], degree: int = 1
) -> tuple[TensorVariable, TensorVariable]:
    r"""Place nodes for :math:`\operatorname{sech}^m(x) \exp(c \operatorname{sech}^k x)` on x > 0.

    Parameters
    ----------
    power : int or scalar TensorVariable
        m, at least 1.
    coefficient : TensorVariable, shape (...)
        c, at least 0.
    density : tuple of int and float
        Number of nodes, and drop of the logarithm of the integrand at the last node.
    degree : int
        k.

    Returns
    -------
    log_sech : TensorVariable, shape (..., nodes)
        Logarithm of sech x at the nodes, none of them at zero.
    log_weight : TensorVariable, shape (..., nodes)
        Logarithm of the weights, for means of even functions of x with density proportional to
        :math:`\operatorname{sech}^m x`.

    Notes
    -----
    The positions of the nodes affect the error only; they are constants for gradients.

    Examples
    --------
    The mean of the square of a coordinate is one over the dimension:

    >>> import pytensor.tensor as pt
    >>> from pymc_geodesic.ops.matrix_hypergeometric import line_nodes
    >>> log_sech, log_weight = line_nodes(4, pt.as_tensor(0.0), (40, 38.0))
    >>> square = pt.sum(pt.exp(log_weight) * (1 - pt.exp(2 * log_sech)))
    >>> round(float(square.eval(mode="FAST_COMPILE")), 12)
    0.2
    """
    count, drop = density
    power = pt.as_tensor(power).astype("float64")
    log_cosh = pt.zeros_like(coefficient)  # log cosh x at the last node, by Newton from below
    for _ in range(NEWTON_STEPS):
        left = coefficient * pt.exp(-degree * log_cosh)
        log_cosh = log_cosh + (drop - power * log_cosh - coefficient + left) / (
            power + degree * left
        )
    last = log_cosh + pt.log1p(pt.sqrt(-pt.expm1(-2.0 * log_cosh)))
    scale = disconnected_grad(last)[..., None] / np.sinh(REACH)
    v = REACH * (np.arange(count) + 0.5) / count
    x = scale * np.sinh(v)
    log_sech = np.log(2.0) - x - pt.log1p(pt.exp(-2.0 * x))
    both_sides = np.log(2.0 * REACH / count * np.cosh(v))
    log_mass = 0.5 * np.log(np.pi) + pt.gammaln(0.5 * power) - pt.gammaln(0.5 * (power + 1.0))
    return log_sech, pt.log(scale) + both_sides + power * log_sech - log_mass


def log_hyp0f1(n: Any, d: TensorVariable, columns: int | None) -> TensorVariable:
    r"""Return :math:`\log {}_0F_1(\tfrac n2; \tfrac14 D^2)`, differentiable in d.

    Parameters
    ----------
    n : int or scalar TensorVariable of int
        Rows of the frames.
    d : TensorVariable, shape (..., p)
        Singular values, at least 0 and in decreasing order; p at most n.
    columns : int or None
        p, if it is static.

    Returns
    -------
    TensorVariable of float64, shape (...)
        Absolute error below 1e-12 for two columns and 1e-6 for three, or relative where the result
        is large; for more see `pymc_geodesic.MatrixVonMisesFisher`.

    References
    ----------
    Hoff (2009), Simulation of the matrix Bingham–von Mises–Fisher distribution, section 3.1, for
    the conditional distributions of the columns; Muirhead (1982),
    *Aspects of multivariate statistical theory*, chapter 7, for the function.

    Examples
    --------
    Orthogonal 2 × 2 matrices turn by an angle, and one half of them reflect:

    >>> import numpy as np
    >>> import pytensor.tensor as pt
    >>> from pymc_geodesic.ops.matrix_hypergeometric import log_hyp0f1
    >>> integral = log_hyp0f1(2, pt.as_tensor([3.0, 1.0]), 2).exp()
    >>> float(integral.eval(mode="FAST_COMPILE") - (np.i0(4.0) + np.i0(2.0)) / 2.0) < 1e-12
    True
    """
    d = d.astype("float64")
    p = d.shape[-1] if columns is None else columns
    singles = _one_column(n, d).sum(axis=-1)
    if columns == 1:
        return singles
    one, other = _subsets(d, 2, columns)
    pairs = _two_columns(n, one, other).sum(axis=-1)
    if columns == 2:
        return pairs
    density = MEDIUM if columns == 3 else COARSE
    first, second, third = _subsets(d, 3, columns)
    triples = _three_columns(n, first, second, third, density).sum(axis=-1)
    if columns == 3:
        return triples
    of_two = pairs - (p - 2) * singles
    of_three = triples - (p - 3) * pairs + (p - 2) * (p - 3) / 2 * singles
    return of_three + _remainder_ratio(n, p) * (of_three - of_two)


def _one_column(n: Any, d: TensorVariable) -> TensorVariable:
    """Return log Ω for each d."""
    return log_vmf_normalizer(n, 0.0) - log_vmf_normalizer(n, d)


def _subsets(d: TensorVariable, size: int, columns: int | None) -> list[TensorVariable]:
    """Return the first, second, … element of each subset of the last axis, shape (..., subsets)."""
    if columns is not None:
        chosen = np.array(list(itertools.combinations(range(columns), size)))
        return [d[..., index] for index in chosen.T]
    index = pt.arange(d.shape[-1])
    along = [index.reshape((-1, *(1,) * later)) for later in reversed(range(size))]
    rising = [here < after for here, after in itertools.pairwise(along)]
    return [d[..., index] for index in pt.nonzero(reduce(pt.and_, rising))]


def _two_columns(n: Any, first: TensorVariable, second: TensorVariable) -> TensorVariable:
    """Return log c of two columns, for arrays of the same shape."""
    log_sech, log_weight = line_nodes(n - 1, first + second, FINE)
    s = pt.exp(log_sech)
    terms = log_weight + _one_column(n - 1, first[..., None] * s)
    terms = terms + _one_column(n - 1, second[..., None] * s)
    return pt.logsumexp(terms, axis=-1)


def _three_columns(
    n: Any,
    first: TensorVariable,
    second: TensorVariable,
    third: TensorVariable,
    density: tuple[int, float],
) -> TensorVariable:
    """Return log c of three columns in decreasing order, for arrays of the same shape."""
    of_v, weight_of_v = line_nodes(n - 1, first + third, density)
    of_u, weight_of_u = line_nodes(n - 2, first + second, density)
    inner, inner_weight = line_nodes(n - 2, second + third, density)
    log_s = of_v[..., :, None] + of_u[..., None, :]
    s, v_squared = pt.exp(log_s), -pt.expm1(2.0 * of_v)[..., :, None]
    second, third = second[..., None, None], third[..., None, None]
    apart = (second - third) * (second + third) * v_squared + TINY
    total = pt.sqrt(apart + pt.sqr(second * s + third))
    difference = pt.sqrt(apart + pt.sqr(second * s - third))
    larger = 0.5 * (total + difference)
    smaller = second * third * s / larger
    inner_s = pt.exp(inner)[..., None, None, :]
    terms = (
        inner_weight[..., None, None, :]
        + _one_column(n - 2, larger[..., None] * inner_s)
        + _one_column(n - 2, smaller[..., None] * inner_s)
    )
    outer = pt.logsumexp(terms, axis=-1) + _one_column(n - 2, first[..., None, None] * s)
    outer = outer + weight_of_v[..., :, None] + weight_of_u[..., None, :]
    return pt.logsumexp(outer, axis=(-2, -1))


def _log_limit(n: Any, p: Any) -> TensorVariable:
    r"""Return the constant of log c for large d, beyond a sum over columns and pairs of them.

    .. math::

        \log c_n = \sum_i d_i - \tfrac{n-p}{2} \sum_i \log d_i
                   - \tfrac12 \sum_{i<j} \log(d_i + d_j) + \text{constant} + O(1/d)
    """
    rows, columns = (pt.as_tensor(each).astype("float64") for each in (n, p))
    spheres = rows - pt.arange(p)
    areas = pt.sum(np.log(2.0) + 0.5 * spheres * np.log(np.pi) - pt.gammaln(0.5 * spheres))
    return 0.5 * (rows * columns - 0.5 * columns * (columns + 1.0)) * np.log(2.0 * np.pi) - areas


def _remainder_ratio(n: Any, p: Any) -> TensorVariable:
    """Return the ratio of r to the interaction of three columns for large d; zero for p ≤ 3."""
    one, two, three = (_log_limit(n, size) for size in (1, 2, 3))
    p = pt.as_tensor(p).astype("float64")
    singles, pairs = p * one, p * (p - 1.0) / 2.0 * two
    triples = p * (p - 1.0) * (p - 2.0) / 6.0 * three
    of_two = pairs - (p - 2.0) * singles
    of_three = triples - (p - 3.0) * pairs + (p - 2.0) * (p - 3.0) / 2.0 * singles
    rest, common = _log_limit(n, p.astype("int64")) - of_three, of_three - of_two
    several = pt.gt(p, 3.0)
    return pt.where(several, rest / pt.where(several, common, 1.0), 0.0)


def log_hyp0f0(A: TensorVariable, b: TensorVariable, n: int, p: int) -> TensorVariable:
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
    >>> from pymc_geodesic.ops.matrix_hypergeometric import log_hyp0f0
    >>> log = log_hyp0f0(pt.as_tensor(np.diag([3.0, 1.0])), pt.as_tensor([1.0, -1.0]), 2, 2)
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
    return largest + _hyp0f0_of_three_rows(*pt.broadcast_arrays(*apart, *steps))


def _eigenvalues(A: TensorVariable) -> TensorVariable:
    """Return the eigenvalues, smallest first, differentiable also at ties."""
    axes = disconnected_grad(pt.linalg.eigh(A)[1])
    return pt.sum(axes * (A @ axes), axis=-2)


def _log_bessel(x: TensorVariable) -> TensorVariable:
    """Return log I₀."""
    return log_vmf_normalizer(2, 0.0) - log_vmf_normalizer(2, x)


def _hyp0f0_of_three_rows(
    upper: TensorVariable, lower: TensorVariable, first: TensorVariable, second: TensorVariable
) -> TensorVariable:
    """Return the logarithm for gaps of eigenvalues and of weights, relative to its maximum."""
    turned = second > first
    first, second = pt.where(turned, second, first), pt.where(turned, first, second)
    upper, lower = pt.where(turned, lower, upper), pt.where(turned, upper, lower)
    of_angle, angle_weight = line_nodes(1, first * upper, FINE, degree=2)
    cosine = pt.exp(2.0 * of_angle)  # squared, of the angle from the first axis to the second
    nearest = first[..., None] * (upper[..., None] * cosine + lower[..., None])
    of_height, height_weight = line_nodes(2, nearest, FINE, degree=2)
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
