r"""The first two derivatives of :math:`\log \Gamma`, which Numba does not have.

Seven steps of the recurrence :math:`\psi(x) = \psi(x + 1) - 1/x` reach the range of the asymptotic
series, whose first omitted term is below 10⁻¹³ there.
"""

import math

from pymc_geodesic.runtime.jit import compiled

_LARGE = 8.0


@compiled
def digamma(x: float) -> float:
    r"""Differentiate :math:`\log \Gamma(x)`.

    Parameters
    ----------
    x : float
        Positive.

    Examples
    --------
    >>> from pymc_geodesic.runtime.digamma import digamma
    >>> round(digamma(1.0), 12)  # minus Euler's constant
    -0.577215664902
    """
    shifted = 0.0
    while x < _LARGE:
        shifted -= 1.0 / x
        x += 1.0
    y = 1.0 / (x * x)
    tail = 1.0 / 132.0 - y * (691.0 / 32760.0 - y / 12.0)
    tail = 1.0 / 252.0 - y * (1.0 / 240.0 - y * tail)
    series = y * (1.0 / 12.0 - y * (1.0 / 120.0 - y * tail))
    return shifted + math.log(x) - 0.5 / x - series


@compiled
def trigamma(x: float) -> float:
    r"""Differentiate :math:`\log \Gamma(x)` twice.

    Parameters
    ----------
    x : float
        Positive.

    Examples
    --------
    >>> from math import pi
    >>> from pymc_geodesic.runtime.digamma import trigamma
    >>> round(trigamma(1.0) - pi**2 / 6.0, 12)
    0.0
    """
    shifted = 0.0
    while x < _LARGE:
        shifted += 1.0 / (x * x)
        x += 1.0
    y = 1.0 / (x * x)
    tail = 1.0 / 30.0 - y * (5.0 / 66.0 - y * (691.0 / 2730.0 - y * 7.0 / 6.0))
    series = 1.0 / 6.0 - y * (1.0 / 30.0 - y * (1.0 / 42.0 - y * tail))
    return shifted + 1.0 / x + 0.5 * y + y / x * series
