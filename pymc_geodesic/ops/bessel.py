r"""Modified Bessel functions in the von Mises–Fisher constant, for NumPy, PyTensor and Numba.

The density on the sphere :math:`S^{d-1}` with respect to surface measure is
:math:`c_d(\kappa)\, e^{\kappa \mu \cdot x}`. `bessel_functions` builds the functions for an
arithmetic; those of NumPy arrays are `log_vmf_normalizer`, `mean_resultant_length` and its slope,
those of PyTensor variables are in `pymc_geodesic.ops.bessel_ops`.

Bessel functions of order :math:`\nu = d/2 - 1` are evaluated without a library call. Debye's
uniform expansion gives them at the order :math:`\nu + 16`, where twelve terms reach machine
precision for every argument. For real order :math:`m` and argument :math:`\kappa`, with
:math:`s = \sqrt{m^2 + \kappa^2}` and :math:`p = m / s`, DLMF 10.41.3 and 10.41.10 are

.. math::

    I_m(\kappa) \sim \frac{e^{s}}{\sqrt{2 \pi s}} \Bigl(\frac{\kappa}{m + s}\Bigr)^{m}
                     \sum_k \frac{U_k(p)}{m^k}, \qquad
    U_{k+1}(p) = \tfrac12 p^2 (1 - p^2) U_k'(p) + \tfrac18 \int_0^p (1 - 5 t^2) U_k(t)\, dt .

:math:`U_k` is :math:`p^k` times a polynomial of degree k in :math:`p^2`, so that
:math:`U_k(p) / m^k = s^{-k} a_k(p^2)`, which holds for every argument, zero included. The scaled
ratio :math:`\rho_k = I_{k+1}(\kappa) / (\kappa I_k(\kappa))` then goes down to :math:`\nu` by

.. math:: \rho_{k-1} = \frac{1}{2 k + \kappa^2 \rho_k} ,

which is the recurrence DLMF 10.29.1 in its stable direction. There is no division by
:math:`\kappa`, which may be zero.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

N_TERMS = 12
"""Number of terms of Debye's expansion after the leading one."""

ORDER_SHIFT = 16
"""Increase of the order at which Debye's expansion is used."""

MAX_KAPPA = 1e8
"""Upper bound on κ; the likelihood of identical points has no maximum."""

NEWTON_STEPS = 50


def _expansion(n_terms: int) -> list[list[Fraction]]:
    """Return the coefficients of a_k, k = 0 … n_terms, lowest power first."""
    rows = [[Fraction(1)]]
    for k in range(n_terms):
        new = [Fraction(0)] * (k + 2)
        for j, coefficient in enumerate(rows[-1]):
            power = k + 2 * j
            half_slope = coefficient * power / 2
            new[j] += half_slope + coefficient / (8 * (power + 1))
            new[j + 1] -= half_slope + 5 * coefficient / (8 * (power + 3))
        rows.append(new)
    return rows


def _logarithmic_derivative(rows: list[list[Fraction]]) -> list[list[Fraction]]:
    r"""Return the coefficients of :math:`k a_k + 2 y a_k'(y)`, y = p²."""
    return [[(k + 2 * j) * c for j, c in enumerate(row)] for k, row in enumerate(rows)]


def _ratio(rows: list[list[Fraction]]) -> list[list[Fraction]]:
    r"""Return the coefficients of b_k, with :math:`p^k b_k(p^2) = p (U_{k-1}/2 + p\,U_{k-1}')`.

    They are the difference of the expansions of the derivative (DLMF 10.41.11) and the function.
    """
    return [
        [Fraction(0)],
        *(
            [(Fraction(1, 2) + k + 2 * j) * c for j, c in enumerate(row)]
            for k, row in enumerate(rows[:-1])
        ),
    ]


def _table(rows: list[list[Fraction]]) -> NDArray[np.float64]:
    """Return rows of different lengths as a lower triangular matrix."""
    table = np.zeros((len(rows), len(rows)))
    for k, row in enumerate(rows):
        table[k, : len(row)] = [float(c) for c in row]
    return table


_FUNCTION = _expansion(N_TERMS)
_RATIO = _ratio(_FUNCTION)

FUNCTION = _table(_FUNCTION)
r"""Coefficients of :math:`a_k(y)`: row k, column j for :math:`y^j`."""

RATIO = _table(_RATIO)
r"""Coefficients of :math:`b_k(y)`, of the ratio of consecutive orders."""

FUNCTION_SLOPE = _table(_logarithmic_derivative(_FUNCTION))
r"""Coefficients of :math:`k a_k + 2 y a_k'`."""

RATIO_SLOPE = _table(_logarithmic_derivative(_RATIO))
r"""Coefficients of :math:`k b_k + 2 y b_k'`."""


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
    r"""Return the functions of the von Mises–Fisher constant for an arithmetic.

    Parameters
    ----------
    sqrt, log : callable
        Square root and natural logarithm of numbers that support + − × ÷.
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
        raised = order + ORDER_SHIFT
        radius = sqrt(raised * raised + kappa * kappa)
        inverse = 1.0 / radius
        square = (raised * inverse) * (raised * inverse)
        series = double_series(FUNCTION, square, inverse)
        reach = radius + raised
        ratio = 1.0 / reach - inverse * double_series(RATIO, square, inverse) / series
        # Every factor is near one, which avoids over- and underflow.
        product = reach * 0.0 + 1.0
        for step in range(ORDER_SHIFT):
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
        raised = 0.5 * d - 1.0 + ORDER_SHIFT
        radius = sqrt(raised * raised + kappa * kappa)
        inverse = 1.0 / radius
        square = (raised * inverse) * (raised * inverse)
        ratio = 1.0 / (radius + raised) - inverse * double_series(
            RATIO, square, inverse
        ) / double_series(FUNCTION, square, inverse)
        for step in range(ORDER_SHIFT):
            ratio = 1.0 / (2.0 * (raised - step) + kappa * kappa * ratio)
        return kappa * ratio

    @compiled
    def mean_resultant_length_slope(d: Any, kappa: Any) -> Any:
        raised = 0.5 * d - 1.0 + ORDER_SHIFT
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
        # `growth` is d log(kappa ratio) / d log kappa, with a recurrence of its own; the
        # textbook form 1 - A² - (d - 1) A / kappa cancels for large kappa.
        growth = cosine + (kappa * inverse) * (kappa * inverse) * (
            cosine * quotient + (1.0 + cosine) * quotient_slope
        ) / (1.0 - (1.0 + cosine) * quotient)
        for step in range(ORDER_SHIFT):
            twice_order = 2.0 * (raised - step)
            inner = kappa * kappa * ratio
            ratio = 1.0 / (twice_order + inner)
            growth = ratio * (twice_order - inner * growth)
        return ratio * growth

    return BesselFunctions(log_normalizer, mean_resultant_length, mean_resultant_length_slope)


NUMPY_FUNCTIONS = bessel_functions(np.sqrt, np.log)


def _arguments(d: ArrayLike, kappa: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    dimension, concentration = np.asarray(d, dtype=float), np.asarray(kappa, dtype=float)
    if not np.all(dimension >= 2):
        raise ValueError(f"d must be at least 2, the dimension of the space, but d = {d!r}")
    if not np.all(concentration >= 0):
        raise ValueError(f"kappa must not be negative or NaN, but kappa = {kappa!r}")
    return dimension, concentration


def log_vmf_normalizer(d: ArrayLike, kappa: ArrayLike) -> NDArray[np.float64]:
    r"""Logarithm of the constant of the von Mises–Fisher density.

    .. math::

        \log c_d(\kappa) = (\tfrac d2 - 1) \log\kappa - \tfrac d2 \log 2\pi
                           - \log I_{d/2-1}(\kappa)

    At :math:`\kappa = 0` it is minus the logarithm of the area of the sphere.

    Parameters
    ----------
    d : array_like of float, shape (...)
        Dimension of the space that holds the sphere, at least 2.
    kappa : array_like of float, shape (...)
        Concentration, at least 0.

    Returns
    -------
    ndarray of float, shape (...)
        Relative error below 1e-14 for d from 2 to 1e5 and kappa from 0 to 1e8, except near
        values of zero, where the absolute error is of the order of 1e-16 (d + kappa).

    Raises
    ------
    ValueError
        If d is below 2 or kappa is negative.

    References
    ----------
    Mardia and Jupp, *Directional Statistics* (2000), section 9.3.2.

    Examples
    --------
    On :math:`S^2` the constant is :math:`\kappa / (4 \pi \sinh \kappa)`:

    >>> import numpy as np
    >>> from pymc_geodesic.ops.bessel import log_vmf_normalizer
    >>> float(log_vmf_normalizer(3, 2.0) - np.log(2.0 / (4 * np.pi * np.sinh(2.0)))) < 1e-14
    True
    """
    return NUMPY_FUNCTIONS.log_normalizer(*_arguments(d, kappa))


def mean_resultant_length(d: ArrayLike, kappa: ArrayLike) -> NDArray[np.float64]:
    r"""Length of the mean vector, :math:`A_d(\kappa) = I_{d/2}(\kappa) / I_{d/2-1}(\kappa)`.

    :math:`A_d = -\partial \log c_d / \partial\kappa = \mathrm E[\mu \cdot x]`.

    Parameters
    ----------
    d : array_like of float, shape (...)
        Dimension of the space, at least 2.
    kappa : array_like of float, shape (...)
        Concentration, at least 0.

    Returns
    -------
    ndarray of float, shape (...)
        Between 0 and 1, relative error below 1e-14.

    Raises
    ------
    ValueError
        If d is below 2 or kappa is negative.

    References
    ----------
    Mardia and Jupp, *Directional Statistics* (2000), section 9.3.2.

    Examples
    --------
    >>> from pymc_geodesic.ops.bessel import mean_resultant_length
    >>> float(mean_resultant_length(3, 2.0))  # coth(2) - 1/2
    0.537314...
    """
    return NUMPY_FUNCTIONS.mean_resultant_length(*_arguments(d, kappa))


def mean_resultant_length_slope(d: ArrayLike, kappa: ArrayLike) -> NDArray[np.float64]:
    r"""Slope of the mean resultant length, the variance of :math:`\mu \cdot x`.

    .. math:: A_d'(\kappa) = 1 - A_d(\kappa)^2 - \frac{d - 1}{\kappa} A_d(\kappa)

    It is computed by a recurrence that avoids the cancellation of this formula.

    Parameters
    ----------
    d : array_like of float, shape (...)
        Dimension of the space, at least 2.
    kappa : array_like of float, shape (...)
        Concentration, at least 0.

    Returns
    -------
    ndarray of float, shape (...)
        Positive, relative error below 1e-12; 1/d at kappa = 0.

    Raises
    ------
    ValueError
        If d is below 2 or kappa is negative.

    References
    ----------
    Mardia and Jupp, *Directional Statistics* (2000), appendix 1.

    Examples
    --------
    >>> from pymc_geodesic.ops.bessel import mean_resultant_length_slope
    >>> float(mean_resultant_length_slope(4, 0.0))
    0.25
    """
    return NUMPY_FUNCTIONS.mean_resultant_length_slope(*_arguments(d, kappa))


def kappa_of_resultant_length(d: int, length: NDArray[np.float64]) -> NDArray[np.float64]:
    r"""Solve :math:`A_d(\kappa) = R` for κ, the maximum of the likelihood.

    Newton's method from :math:`R (d - R^2) / (1 - R^2)` (Banerjee et al. 2005, eq. 4.4), a close
    approximation.
    """
    length = np.clip(length, 0.0, 1.0 - 1e-12)
    kappa = np.minimum(length * (d - length**2) / (1.0 - length**2), MAX_KAPPA)
    for _ in range(NEWTON_STEPS):
        change = (mean_resultant_length(d, kappa) - length) / mean_resultant_length_slope(d, kappa)
        following = np.clip(kappa - change, 0.5 * kappa, np.minimum(2.0 * kappa, MAX_KAPPA))
        if np.all(np.abs(following - kappa) <= 1e-12 * (1.0 + kappa)):
            return following
        kappa = following
    return kappa
