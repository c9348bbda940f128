"""Pieces of compiled loops without branches, which the compiler turns into vector instructions."""

import numpy as np

from pymc_geodesic.runtime.jit import compiled

CHUNK = 512
"""Numbers that a loop takes at once, few enough to stay close to the processor."""


@compiled(inline="always")
def exponential(x: float) -> float:
    """Exponential of a number in [−700, 700], which the compiler can turn into vector instructions.

    Parameters
    ----------
    x : float
        What lies outside counts as −700 or 700.

    Returns
    -------
    float
        With a relative error of some 10⁻¹⁶ (1 + |x|).

    Examples
    --------
    >>> from pymc_geodesic.runtime.branchless import exponential
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
    # Vector instructions turn floats into integers of 32 bits only.
    return series * np.int64(np.int64(np.int32(power) + 1023) << 52).view(np.float64)


@compiled(inline="always")
def divide(numbers: np.ndarray, bound: float, places: np.ndarray) -> int:
    """Write the places of the numbers below a bound, then those of the others; count the first.

    What is not a number counts as above.

    Uses one entry of `places` more than there are numbers.
    """
    n = numbers.size
    below = 0
    for i in range(n):  # without a branch, which would be guessed wrong
        places[below] = i
        below += numbers[i] < bound
    above = below
    for i in range(n):
        places[above] = i
        above += not numbers[i] < bound
    return below
