r"""Coefficients of Debye's uniform expansion of the modified Bessel function.

For real order :math:`m` and argument :math:`\kappa`, with :math:`s = \sqrt{m^2 + \kappa^2}` and
:math:`p = m / s`, DLMF 10.41.3 and 10.41.10 are

.. math::

    I_m(\kappa) \sim \frac{e^{s}}{\sqrt{2 \pi s}} \Bigl(\frac{\kappa}{m + s}\Bigr)^{m}
                     \sum_k \frac{U_k(p)}{m^k}, \qquad
    U_{k+1}(p) = \tfrac12 p^2 (1 - p^2) U_k'(p) + \tfrac18 \int_0^p (1 - 5 t^2) U_k(t)\, dt .

:math:`U_k` is :math:`p^k` times a polynomial of degree k in :math:`p^2`, so that
:math:`U_k(p) / m^k = s^{-k} a_k(p^2)`, which holds for every argument, zero included.
"""

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

N_TERMS = 12
"""Terms after the leading one."""


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

    They are what the expansion of the derivative (DLMF 10.41.11) adds to that of the function.
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
