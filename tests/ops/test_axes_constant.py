"""The mean of exp tr BXᵀAX over orthogonal matrices: Bingham constants, limits, symmetries."""

from functools import cache

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from scipy import special

from pymc_geodesic.ops.fisher_bingham_integral import matrix_moments
from pymc_geodesic.ops.matrix_hypergeometric import log_axes_integral
from tests.grids import cross

EIGENVALUES = {
    "apart": (3.0, 1.0, -2.0),
    "two above": (1.0, 1.0, 0.0),
    "two below": (1.0, 0.0, 0.0),
    "all equal": (2.0, 2.0, 2.0),
    "nearly equal": (300.0, 299.999, 0.0),
    "far apart": (1e6, 0.0, -1e6),
}


@cache
def compiled(n, p):
    A, b = pt.tensor("A", shape=(n, n)), pt.tensor("b", shape=(p,))
    return pytensor.function([A, b], log_axes_integral(A, b, n, p), mode="FAST_COMPILE")


def log_mean(a, b):
    a, b = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    return float(compiled(len(a), len(b))(np.diag(a), b))


def log_mean_of_axis(a):
    """For one column: the constant of Bingham, by a contour."""
    return float(matrix_moments(np.diag(a), np.zeros(3))[0]) - np.log(4.0 * np.pi)


@pytest.mark.parametrize(("case", "size"), cross(EIGENVALUES, [7.0, 0.1, -3.0]))
def test_a_single_column_or_all_but_one_is_bingham(case, size):
    a = np.array(EIGENVALUES[case])
    exact = log_mean_of_axis(size * a)
    assert log_mean(a, [size]) == pytest.approx(exact, rel=1e-12, abs=1e-12)
    rest = size * a.sum() + log_mean_of_axis(-size * a)
    assert log_mean(a, [size, size]) == pytest.approx(rest, rel=1e-12, abs=1e-12)
    shifted = log_mean(a, [3.0 * size, 2.0 * size, 2.0 * size])
    assert shifted == pytest.approx(2.0 * size * a.sum() + exact, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("case", EIGENVALUES)
def test_both_matrices_may_change_places_and_signs(case):
    a, b = np.array(EIGENVALUES[case]), np.array([2.5, 0.3, -1.0])
    value = log_mean(a, b)
    for other in (log_mean(b, a), log_mean(-a, -b), log_mean(a[[2, 0, 1]], b[[1, 0, 2]])):
        assert other == pytest.approx(value, rel=1e-12, abs=1e-12)
    shifted = log_mean(a + 0.5, b - 0.25)
    constants = 0.5 * b.sum() - 0.25 * a.sum() - 3.0 * 0.5 * 0.25
    assert shifted == pytest.approx(value + constants, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("b", [(1.0, 0.2), (-1.0, 30.0), (-2.0, -2.0), (500.0, 0.0)])
def test_two_dimensions_are_an_angle(b):
    half, middle = 0.5 * (b[0] - b[1]), 0.5 * (b[0] + b[1])
    bessel = np.log(special.i0e(8.0 * half)) + abs(8.0 * half)
    exact = -middle * 2.0 + bessel  # eigenvalues 3 and −5
    assert log_mean([3.0, -5.0], b) == pytest.approx(exact, rel=1e-12, abs=1e-12)


def test_well_separated_eigenvalues_leave_a_normal_law_at_each_mode():
    a, b = np.array([3.0, 1.0, -2.0]), np.array([2.0, 0.7, -0.4])
    i, j = np.triu_indices(3, 1)
    gaps = (a[i] - a[j]) * (b[i] - b[j])
    rests = []
    for size in (1e3, 2e3):
        # Four modes of the rotations, whose volume is 8 π² in angles.
        leading = size * a @ b + 0.5 * np.log(np.pi / (size * gaps)).sum() - np.log(2.0 * np.pi**2)
        rests.append(log_mean(size * a, b) - leading)
    assert abs(rests[0]) < 5e-3
    assert rests[0] == pytest.approx(2.0 * rests[1], rel=1e-2)
