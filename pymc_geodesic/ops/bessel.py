r"""The von Mises–Fisher constant, written once for NumPy, PyTensor and Numba.

Bessel functions of order :math:`\nu = d/2 - 1` are evaluated without a library call. Debye's
expansion (`pymc_geodesic.ops.debye`) gives them at the order :math:`\nu + 16`, where
twelve terms reach machine precision for every argument. The scaled ratio
:math:`\rho_k = I_{k+1}(\kappa) / (\kappa I_k(\kappa))` then goes down to :math:`\nu` by

.. math:: \rho_{k-1} = \frac{1}{2 k + \kappa^2 \rho_k} ,

which is the recurrence DLMF 10.29.1 in its stable direction. Nothing divides by :math:`\kappa`:
zero is an ordinary argument.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from pymc_geodesic.ops.debye import (
    FUNCTION,
    FUNCTION_SLOPE,
    N_TERMS,
    RATIO,
    RATIO_SLOPE,
)

RAISE = 16
"""How much the order is raised before Debye's expansion is used."""


class BesselFunctions(NamedTuple):
    """Functions of (d, kappa), both floating point; see `bessel_functions`."""

    log_normalizer: Callable[[Any, Any], Any]
    mean_resultant_length: Callable[[Any, Any], Any]
    mean_resultant_length_slope: Callable[[Any, Any], Any]


def bessel_functions(
    sqrt: Callable[[Any], Any],
    log: Callable[[Any], Any],
    compiled: Callable[[Callable[..., Any]], Callable[..., Any]] = lambda function: function,
) -> BesselFunctions:
    r"""Build the functions of the von Mises–Fisher constant on an arithmetic.

    Parameters
    ----------
    sqrt, log : callable
        Square root and natural logarithm of the arithmetic; its numbers know + − × ÷.
    compiled : callable, optional
        Decorator for every function, the inner ones included.

    Returns
    -------
    BesselFunctions
        :math:`\log c_d(\kappa)`, :math:`A_d(\kappa)` and :math:`A_d'(\kappa)`.
    """

    @compiled
    def double_series(table: Any, square: Any, inverse: Any) -> Any:
        total = table[N_TERMS, N_TERMS]
        for j in range(N_TERMS - 1, -1, -1):
            total = square * total + table[N_TERMS, j]
        for k in range(N_TERMS - 1, -1, -1):
            row = table[k, k]
            for j in range(k - 1, -1, -1):
                row = square * row + table[k, j]
            total = inverse * total + row
        return total

    @compiled
    def log_normalizer(d: Any, kappa: Any) -> Any:
        order = 0.5 * d - 1.0
        raised = order + RAISE
        radius = sqrt(raised * raised + kappa * kappa)
        inverse = 1.0 / radius
        square = (raised * inverse) * (raised * inverse)
        series = double_series(FUNCTION, square, inverse)
        reach = radius + raised
        ratio = 1.0 / reach - inverse * double_series(RATIO, square, inverse) / series
        # Every factor is near one, so that their product neither over- nor underflows.
        product = reach * 0.0 + 1.0
        for step in range(RAISE):
            ratio = 1.0 / (2.0 * (raised - step) + kappa * kappa * ratio)
            product = product * (ratio * reach)
        return (
            order * log(reach * (0.5 / math.pi))
            - radius
            - 0.5 * math.log(2.0 * math.pi)
            + log(product * sqrt(radius) / series)
        )

    @compiled
    def mean_resultant_length(d: Any, kappa: Any) -> Any:
        raised = 0.5 * d - 1.0 + RAISE
        radius = sqrt(raised * raised + kappa * kappa)
        inverse = 1.0 / radius
        square = (raised * inverse) * (raised * inverse)
        ratio = 1.0 / (radius + raised) - inverse * double_series(
            RATIO, square, inverse
        ) / double_series(FUNCTION, square, inverse)
        for step in range(RAISE):
            ratio = 1.0 / (2.0 * (raised - step) + kappa * kappa * ratio)
        return kappa * ratio

    @compiled
    def mean_resultant_length_slope(d: Any, kappa: Any) -> Any:
        raised = 0.5 * d - 1.0 + RAISE
        radius = sqrt(raised * raised + kappa * kappa)
        inverse = 1.0 / radius
        cosine = raised * inverse
        square = cosine * cosine
        series = double_series(FUNCTION, square, inverse)
        quotient = double_series(RATIO, square, inverse) / series
        quotient_slope = (
            double_series(RATIO_SLOPE, square, inverse)
            - quotient * double_series(FUNCTION_SLOPE, square, inverse)
        ) / series
        ratio = 1.0 / (radius + raised) - inverse * quotient
        # `growth` is d log(kappa ratio) / d log kappa, and obeys a recurrence of its own; the
        # textbook form 1 - A² - (d - 1) A / kappa loses all its digits at large kappa.
        growth = cosine + (kappa * inverse) * (kappa * inverse) * (
            cosine * quotient + (1.0 + cosine) * quotient_slope
        ) / (1.0 - (1.0 + cosine) * quotient)
        for step in range(RAISE):
            twice_order = 2.0 * (raised - step)
            inner = kappa * kappa * ratio
            ratio = 1.0 / (twice_order + inner)
            growth = ratio * (twice_order - inner * growth)
        return ratio * growth

    return BesselFunctions(log_normalizer, mean_resultant_length, mean_resultant_length_slope)
