r"""The von Mises–Fisher constant and its derivatives for NumPy arrays.

The density on the sphere :math:`S^{d-1}` with respect to surface measure is
:math:`c_d(\kappa)\, e^{\kappa \mu \cdot x}`. The same functions of PyTensor variables are in
`pymc_geodesic.ops.bessel_ops`.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_geodesic.ops.bessel import bessel_functions

_FUNCTIONS = bessel_functions(np.sqrt, np.log)


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
    >>> from pymc_geodesic.distributions.special import log_vmf_normalizer
    >>> float(log_vmf_normalizer(3, 2.0) - np.log(2.0 / (4 * np.pi * np.sinh(2.0)))) < 1e-14
    True
    """
    return _FUNCTIONS.log_normalizer(*_arguments(d, kappa))


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
    >>> from pymc_geodesic.distributions.special import mean_resultant_length
    >>> float(mean_resultant_length(3, 2.0))  # coth(2) - 1/2
    0.537314...
    """
    return _FUNCTIONS.mean_resultant_length(*_arguments(d, kappa))


def mean_resultant_length_slope(d: ArrayLike, kappa: ArrayLike) -> NDArray[np.float64]:
    r"""Slope of the mean resultant length, the variance of :math:`\mu \cdot x`.

    .. math:: A_d'(\kappa) = 1 - A_d(\kappa)^2 - \frac{d - 1}{\kappa} A_d(\kappa)

    It is computed by a recurrence without the cancellation of this formula.

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
    >>> from pymc_geodesic.distributions.special import mean_resultant_length_slope
    >>> float(mean_resultant_length_slope(4, 0.0))
    0.25
    """
    return _FUNCTIONS.mean_resultant_length_slope(*_arguments(d, kappa))


def log_bessel_i(order: ArrayLike, x: ArrayLike) -> NDArray[np.float64]:
    r"""Logarithm of the modified Bessel function :math:`\log I_\nu(x)`.

    Parameters
    ----------
    order : array_like of float, shape (...)
        :math:`\nu \ge 0`.
    x : array_like of float, shape (...)
        Argument, at least 0.

    Returns
    -------
    ndarray of float, shape (...)
        Minus infinity at x = 0, except for the order 0.

    Raises
    ------
    ValueError
        If the order or x is negative.

    Examples
    --------
    >>> from pymc_geodesic.distributions.special import log_bessel_i
    >>> float(log_bessel_i(0.5, 1.0))  # log(sqrt(2 / pi) sinh(1))
    -0.064351...
    >>> float(log_bessel_i(2500.0, 10.0))
    -13041.3...
    """
    nu, argument = np.asarray(order, dtype=float), np.asarray(x, dtype=float)
    if not np.all(nu >= 0):
        raise ValueError(f"the order of a Bessel function must be at least 0, but is {order!r}")
    constant = log_vmf_normalizer(2.0 * nu + 2.0, argument)
    with np.errstate(divide="ignore"):
        power = np.where(nu == 0, 0.0, nu * np.log(np.where(nu == 0, 1.0, argument)))
    return power - (nu + 1.0) * np.log(2.0 * np.pi) - constant


LARGEST_KAPPA = 1e8
"""Bound for a component of equal points, whose likelihood has no maximum."""

NEWTON_STEPS = 50


def kappa_of_resultant_length(d: int, length: NDArray[np.float64]) -> NDArray[np.float64]:
    r"""Solve :math:`A_d(\kappa) = R` for κ, the maximum of the likelihood.

    Newton's method from :math:`R (d - R^2) / (1 - R^2)` (Banerjee et al. 2005, eq. 4.4), which is
    never far from the root.
    """
    length = np.clip(length, 0.0, 1.0 - 1e-12)
    kappa = np.minimum(length * (d - length**2) / (1.0 - length**2), LARGEST_KAPPA)
    for _ in range(NEWTON_STEPS):
        change = (mean_resultant_length(d, kappa) - length) / mean_resultant_length_slope(d, kappa)
        following = np.clip(kappa - change, 0.5 * kappa, np.minimum(2.0 * kappa, LARGEST_KAPPA))
        if np.all(np.abs(following - kappa) <= 1e-12 * (1.0 + kappa)):
            return following
        kappa = following
    return kappa
