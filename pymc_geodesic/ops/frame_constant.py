r"""The constant of the matrix von Mises–Fisher distribution for PyTensor variables.

Its mean over uniform frames, :math:`E \exp\operatorname{tr}(F^\top X) =
{}_0F_1(\tfrac n2; \tfrac14 F^\top F)`, depends on the singular values d of F alone. With
:math:`\Omega_m` that function for a single column in m dimensions, an inverse of von Mises–Fisher
constants, and :math:`c_n` for several, conditioning on the first column gives

.. math::

    c_n(d_1, d_2) &= E\, \Omega_{n-1}(d_1 s)\, \Omega_{n-1}(d_2 s), \qquad s^2 = 1 - u^2, \\
    c_n(d_1, d_2, d_3) &= E\, \Omega_{n-2}(d_1 s)\, c_{n-1}(\sigma_1, \sigma_2), \qquad
        s^2 = 1 - u^2 - v^2 ,

with u and v two coordinates of a uniform direction in n dimensions, and σ the singular values of
:math:`\operatorname{diag}(d_2, d_3)\,(I - (u, v)^\top (u, v))^{1/2}`. They are
integrated on the nodes of `pymc_geodesic.ops.line_nodes`; all terms are positive.

More columns are put together from the logarithms of those of three, two and one,

.. math::

    \log c_n \approx S_3 - (p - 3) S_2 + \tbinom{p-2}{2} S_1 + r ,

with :math:`S_k` the sum over k of the columns. What four columns have in common is left to r: known
where all d are large, it is taken to grow with what is common to three.
"""

import itertools
from functools import reduce
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.ops.bessel_ops import log_vmf_normalizer
from pymc_geodesic.ops.line_nodes import line_nodes

FINE = 40, 38.0
"""How many nodes, and how far the logarithm of the integrand has fallen at the last."""

MEDIUM, COARSE = (16, 26.0), (14, 22.0)
"""The same where there are three such integrals, for three columns and for more."""

TINY = 1e-100
"""Below squares of singular values, which have slopes of zero at zero."""


def log_frame_integral(n: Any, d: TensorVariable, columns: int | None) -> TensorVariable:
    r"""Return :math:`\log {}_0F_1(\tfrac n2; \tfrac14 D^2)`, differentiable in d.

    Parameters
    ----------
    n : int or scalar TensorVariable of int
        Rows of the frames.
    d : TensorVariable, shape (..., p)
        Singular values, at least 0 and in decreasing order; p at most n.
    columns : int or None
        p, where it is known when the graph is built.

    Returns
    -------
    TensorVariable of float64, shape (...)
        Absolute error below 1e-12 for two columns and 1e-6 for three, or relative where the result
        is large; for more see `pymc_geodesic.MatrixVonMisesFisher`.

    References
    ----------
    Hoff (2009), Simulation of the matrix Bingham–von Mises–Fisher distribution, section 3.1, for
    the law of the columns one after another; Muirhead (1982), *Aspects of multivariate statistical
    theory*, chapter 7, for the function.

    Examples
    --------
    Orthogonal 2 × 2 matrices turn by an angle, and one half of them reflect:

    >>> import numpy as np
    >>> import pytensor.tensor as pt
    >>> from pymc_geodesic.ops.frame_constant import log_frame_integral
    >>> integral = log_frame_integral(2, pt.as_tensor([3.0, 1.0]), 2).exp()
    >>> float(integral.eval(mode="FAST_COMPILE") - (np.i0(4.0) + np.i0(2.0)) / 2.0) < 1e-12
    True
    """
    d = d.astype("float64")
    p = d.shape[-1] if columns is None else columns
    singles = _one(n, d).sum(axis=-1)
    if columns == 1:
        return singles
    one, other = _subsets(d, 2, columns)
    pairs = _two(n, one, other).sum(axis=-1)
    if columns == 2:
        return pairs
    density = MEDIUM if columns == 3 else COARSE
    first, second, third = _subsets(d, 3, columns)
    triples = _three(n, first, second, third, density).sum(axis=-1)
    if columns == 3:
        return triples
    of_two = pairs - (p - 2) * singles
    of_three = triples - (p - 3) * pairs + (p - 2) * (p - 3) / 2 * singles
    return of_three + _of_four(n, p) * (of_three - of_two)


def _one(n: Any, d: TensorVariable) -> TensorVariable:
    """Return log Ω for each d."""
    return log_vmf_normalizer(n, 0.0) - log_vmf_normalizer(n, d)


def _subsets(d: TensorVariable, size: int, columns: int | None) -> list[TensorVariable]:
    """Return the first, second, … element of each subset of the last axis, shape (..., subsets)."""
    if columns is not None:
        chosen = np.array(list(itertools.combinations(range(columns), size)))
        return [d[..., index] for index in chosen.T]
    place = pt.arange(d.shape[-1])
    along = [place.reshape((-1, *(1,) * later)) for later in reversed(range(size))]
    rising = [here < after for here, after in itertools.pairwise(along)]
    return [d[..., index] for index in pt.nonzero(reduce(pt.and_, rising))]


def _two(n: Any, first: TensorVariable, second: TensorVariable) -> TensorVariable:
    """Return log c of two columns, for arrays of the same shape."""
    log_sech, log_weight = line_nodes(n - 1, first + second, FINE)
    s = pt.exp(log_sech)
    terms = log_weight + _one(n - 1, first[..., None] * s) + _one(n - 1, second[..., None] * s)
    return pt.logsumexp(terms, axis=-1)


def _three(
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
        + _one(n - 2, larger[..., None] * inner_s)
        + _one(n - 2, smaller[..., None] * inner_s)
    )
    outer = pt.logsumexp(terms, axis=-1) + _one(n - 2, first[..., None, None] * s)
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


def _of_four(n: Any, p: Any) -> TensorVariable:
    """Return r for large d over what is common to three columns; zero for up to three."""
    one, two, three = (_log_limit(n, size) for size in (1, 2, 3))
    p = pt.as_tensor(p).astype("float64")
    singles, pairs = p * one, p * (p - 1.0) / 2.0 * two
    triples = p * (p - 1.0) * (p - 2.0) / 6.0 * three
    of_two = pairs - (p - 2.0) * singles
    of_three = triples - (p - 3.0) * pairs + (p - 2.0) * (p - 3.0) / 2.0 * singles
    rest, common = _log_limit(n, p.astype("int64")) - of_three, of_three - of_two
    several = pt.gt(p, 3.0)
    return pt.where(several, rest / pt.where(several, common, 1.0), 0.0)
