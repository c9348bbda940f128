"""Ratios of gamma functions without the cancellation of their logarithms."""

import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

LARGE = 40.0


def log_gamma_ratio(a: TensorVariable, b: TensorVariable | float) -> TensorVariable:
    r"""Return :math:`\log\{\Gamma(a + b) / \Gamma(a)\}` for positive a and b.

    For large a the difference of Stirling's series is taken term by term, so that the error is
    that of the result and not that of :math:`\log \Gamma(a)`.

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
    >>> from pymc_geodesic.ops.gamma_ratio import log_gamma_ratio
    >>> ratio = log_gamma_ratio(pt.constant(np.float64(1e9)), 1.0)  # log(1e9)
    >>> float(ratio.eval(mode="FAST_COMPILE"))
    20.723265836946...
    """
    large = a > LARGE
    safe = pt.switch(large, a, LARGE)
    stirling = (
        (safe + b - 0.5) * pt.log1p(b / safe)
        + b * (pt.log(safe) - 1.0)
        + _correction(safe + b)
        - _correction(safe)
    )
    small = pt.switch(large, LARGE, a)
    return pt.switch(large, stirling, pt.gammaln(small + b) - pt.gammaln(small))


def _correction(x: TensorVariable) -> TensorVariable:
    square = 1.0 / x**2
    return (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square / 1680))) / x
