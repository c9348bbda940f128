r"""Elementary and special functions for compiled code that Numba lacks or compiles to slow code.

:math:`\exp` without branches, so that the compiler vectorizes loops; the first two derivatives of
:math:`\log \Gamma`; a partition of indices, and a test for finite vectors.
"""

import math

import numpy as np

from pymc_geodesic.runtime.jit import borrow, compiled

CHUNK = 512
"""Number of elements that loops process at a time, small enough for the processor cache."""


@compiled(inline="always")
def exponential(x: float) -> float:
    """Exponential of a number in [−700, 700], without branches.

    Parameters
    ----------
    x : float
        Clipped to [−700, 700].

    Returns
    -------
    float
        The relative error is about 10⁻¹⁶ (1 + |x|).

    Examples
    --------
    >>> from pymc_geodesic.runtime.numerics import exponential
    >>> exponential(1.0)
    2.71828182845904
    """
    x = min(max(x, -700.0), 700.0)
    power = np.floor(x * 1.4426950408889634 + 0.5)
    rest = x - power * 0.6931471805599453
    series = 2.505210838544172e-8 + rest * (2.08767569878681e-9 + rest * 1.6059043836821613e-10)
    series = 2.7557319223985893e-6 + rest * (2.755731922398589e-7 + rest * series)
    series = 1.984126984126984e-4 + rest * (2.48015873015873e-5 + rest * series)
    series = 8.333333333333333e-3 + rest * (1.388888888888889e-3 + rest * series)
    series = 0.16666666666666666 + rest * (4.1666666666666664e-2 + rest * series)
    series = 1.0 + rest * (1.0 + rest * (0.5 + rest * series))
    # Vector instructions convert floats to 32-bit integers only.
    return series * np.int64(np.int64(np.int32(power) + 1023) << 52).view(np.float64)


@compiled(inline="always")
def partition(numbers: np.ndarray, bound: float, indices: np.ndarray) -> int:
    """Partition indices into those of numbers below a bound and the others; count the former.

    NaN counts as above the bound. `indices` must have one element more than `numbers`.
    """
    n = numbers.size
    below = 0
    for i in range(n):  # without a branch, which would be mispredicted
        indices[below] = i
        below += numbers[i] < bound
    above = below
    for i in range(n):
        indices[above] = i
        above += not numbers[i] < bound
    return below


@compiled
def all_finite(numbers: np.ndarray) -> bool:
    """Whether all elements of a vector are finite.

    Five times as fast as ``np.isfinite(numbers).all()`` for a short vector.

    Parameters
    ----------
    numbers : ndarray, shape (size,)

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.runtime.numerics import all_finite
    >>> all_finite(np.array([1.0, 1e300])), all_finite(np.array([1.0, np.nan]))
    (True, False)
    >>> all_finite(np.array([np.inf, -np.inf]))
    False
    """
    numbers = borrow(numbers)
    total = 0.0
    for i in range(numbers.size):
        total += 0.0 * numbers[i]  # NaN, unless the number is finite
    return total == 0.0


_ASYMPTOTIC_FROM = 8.0
"""Smallest argument of the asymptotic series, whose first omitted term is then below 10⁻¹³. Smaller
arguments are shifted by the recurrence ψ(x) = ψ(x + 1) − 1/x."""


@compiled
def digamma(x: float) -> float:
    r"""Differentiate :math:`\log \Gamma(x)`.

    Parameters
    ----------
    x : float
        Positive.

    Examples
    --------
    >>> from pymc_geodesic.runtime.numerics import digamma
    >>> round(digamma(1.0), 12)  # minus Euler's constant
    -0.577215664902
    """
    shifted = 0.0
    while x < _ASYMPTOTIC_FROM:
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
    >>> from pymc_geodesic.runtime.numerics import trigamma
    >>> round(trigamma(1.0) - pi**2 / 6.0, 12)
    0.0
    """
    shifted = 0.0
    while x < _ASYMPTOTIC_FROM:
        shifted += 1.0 / (x * x)
        x += 1.0
    y = 1.0 / (x * x)
    tail = 1.0 / 30.0 - y * (5.0 / 66.0 - y * (691.0 / 2730.0 - y * 7.0 / 6.0))
    series = 1.0 / 6.0 - y * (1.0 / 30.0 - y * (1.0 / 42.0 - y * tail))
    return shifted + 1.0 / x + 0.5 * y + y / x * series
