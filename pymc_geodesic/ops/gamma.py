"""Gamma functions: ratios for large arguments, and the trigamma function for Numba."""

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.compile.mode import Mode
from pytensor.graph import node_rewriter
from pytensor.graph.basic import Apply
from pytensor.graph.rewriting.basic import dfs_rewriter
from pytensor.scalar.math import TriGamma
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.variable import TensorVariable

STIRLING_BOUND = 40.0
"""Value of a above which Stirling's series is used."""

SHIFT = 10
"""Steps of the recurrence, after which the error of the asymptotic series is below 10⁻¹⁵."""

COEFFICIENTS = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)
"""Bernoulli numbers B₂, B₄, …, B₁₄."""

BEFORE_FUSION = 2.5
"""Position in PyTensor's list of rewrites: after specialization and before loop fusion."""


def log_gamma_ratio(a: TensorVariable, b: TensorVariable | float) -> TensorVariable:
    r"""Return :math:`\log\{\Gamma(a + b) / \Gamma(a)\}` for positive a and b.

    For large a it is the termwise difference of Stirling's series, which avoids the cancellation of
    the difference of :math:`\log \Gamma`.

    Parameters
    ----------
    a : TensorVariable, shape (...)
    b : TensorVariable or float, shape (...)

    Returns
    -------
    TensorVariable, shape (...)

    References
    ----------
    DLMF, equation 5.11.1.

    Examples
    --------
    >>> import numpy as np
    >>> import pytensor.tensor as pt
    >>> from pymc_geodesic.ops.gamma import log_gamma_ratio
    >>> ratio = log_gamma_ratio(pt.constant(np.float64(1e9)), 1.0)  # log(1e9)
    >>> float(ratio.eval(mode="FAST_COMPILE"))
    20.723265836946...
    """
    large = a > STIRLING_BOUND
    safe = pt.switch(large, a, STIRLING_BOUND)
    stirling = (
        (safe + b - 0.5) * pt.log1p(b / safe)
        + b * (pt.log(safe) - 1.0)
        + _correction(safe + b)
        - _correction(safe)
    )
    small = pt.switch(large, STIRLING_BOUND, a)
    return pt.switch(large, stirling, pt.gammaln(small + b) - pt.gammaln(small))


def _correction(x: TensorVariable) -> TensorVariable:
    square = 1.0 / x**2
    return (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square / 1680))) / x


def trigamma(x: TensorVariable) -> TensorVariable:
    r"""Return :math:`\psi'(x)`, the second derivative of :math:`\log \Gamma(x)`.

    The recurrence :math:`\psi'(x) = \psi'(x + 1) + x^{-2}` leads to an argument y of at least 10,
    where :math:`\psi'(y) \approx 1/y + 1/(2 y^2) + \sum_k B_{2k} / y^{2k+1}`. For negative x,
    :math:`\psi'(x) = \pi^2 / \sin^2(\pi x) - \psi'(1 - x)`.

    Parameters
    ----------
    x : TensorVariable, shape (...)
        Floating point.

    Returns
    -------
    TensorVariable, shape (...)
        Relative error below 10⁻¹³ for positive x.

    References
    ----------
    DLMF, equations 5.15.5, 5.15.6 and 5.15.8.

    Examples
    --------
    >>> import numpy as np
    >>> import pytensor.tensor as pt
    >>> from pymc_geodesic.ops.gamma import trigamma
    >>> float(trigamma(pt.constant(1.0)).eval(mode="FAST_COMPILE") * 6 / np.pi**2)
    1.0
    """
    is_positive = pt.gt(x, 0.0)
    positive = pt.switch(is_positive, x, 1.0 - x)
    total = sum(pt.reciprocal((positive + k) * (positive + k)) for k in range(SHIFT))
    inverse = pt.reciprocal(positive + SHIFT)
    square = inverse * inverse
    series = pt.zeros_like(square)
    for coefficient in reversed(COEFFICIENTS):
        series = square * (coefficient + series)
    total = total + inverse * (1.0 + 0.5 * inverse + series)
    root = np.pi / pt.sin(np.pi * x)
    return pt.switch(is_positive, total, root * root - total).astype(x.dtype)


@node_rewriter([Elemwise])
def _arithmetic_for_trigamma(fgraph: Any, node: Apply) -> list[TensorVariable] | None:
    if not isinstance(node.op.scalar_op, TriGamma):
        return None
    (x,) = node.inputs
    return [trigamma(x.astype(node.outputs[0].dtype))]


def with_arithmetic_for_trigamma(mode: Mode) -> Mode:
    """Return a Numba mode in which trigamma functions are arithmetic.

    Parameters
    ----------
    mode : pytensor.compile.mode.Mode

    Examples
    --------
    >>> import numpy as np
    >>> import pytensor
    >>> import pytensor.tensor as pt
    >>> from pymc_geodesic.ops.gamma import with_arithmetic_for_trigamma
    >>> x = pt.tensor(shape=(2,))
    >>> mode = with_arithmetic_for_trigamma(pytensor.compile.mode.get_mode("NUMBA"))
    >>> pytensor.function([x], pt.tri_gamma(x), mode=mode)(np.array([0.5, 2.0])).round(6)
    array([4.934802, 0.644934])
    """
    return mode.register((dfs_rewriter(_arithmetic_for_trigamma), BEFORE_FUSION))
