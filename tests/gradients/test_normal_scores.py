"""Splines of normal scores: closed forms, derivatives, inverses, and bounds."""

import numpy as np
import pytest
from scipy import stats

from pymc_geodesic.gradients.normal_scores import from_score, normal_scores, to_score
from pymc_geodesic.runtime.jit import compiled

DISTANCES = 0.5 * np.sinh(0.25 * np.arange(1, 25)) / 0.25
POINTS = np.concatenate([-DISTANCES[:18][::-1], [0.0], DISTANCES[:12]])
DISTRIBUTIONS = {
    "normal": (stats.norm(0.5, 0.8), lambda x: -(x - 0.5) / 0.8**2),
    "logistic": (stats.logistic(), lambda x: -np.tanh(0.5 * x)),
    # logarithm of an exponential variable: the density decreases like exp(x)
    "log of exponential": (stats.gumbel_l(), lambda x: 1.0 - np.exp(np.minimum(x, 700.0))),
}
Z = np.linspace(-4.5, 4.5, 91)


@compiled
def spline(grid, coefficients, z):
    return from_score(grid, coefficients, z)


@compiled
def inverse(grid, coefficients, x):
    return to_score(grid, coefficients, x)


@pytest.fixture(params=[*DISTRIBUTIONS])
def case(request):
    distribution, slope = DISTRIBUTIONS[request.param]
    points = POINTS[slope(POINTS) > -40.0]
    scores = normal_scores(points, slope(points))
    return distribution, scores.grid[0], scores.coefficients[0]


def test_values_are_quantiles(case):
    distribution, grid, coefficients = case
    found = np.array([spline(grid, coefficients, z)[0] for z in Z])
    np.testing.assert_allclose(distribution.cdf(found), stats.norm.cdf(Z), rtol=0.05, atol=1e-12)
    middle = np.abs(Z) < 2.5
    np.testing.assert_allclose(
        distribution.cdf(found)[middle], stats.norm.cdf(Z)[middle], atol=0.004
    )


def test_slopes_and_curvatures_are_derivatives(case):
    _, grid, coefficients = case
    first, last, step = grid[0], grid[0] + len(coefficients) * grid[1], 1e-6
    for z in (first - 3.0, first + 0.3, -1.2, 0.1, 2.7, last - 0.3, last + 4.0):
        value, slope, curvature = spline(grid, coefficients, z)
        above, below = (spline(grid, coefficients, z + sign * step) for sign in (1.0, -1.0))
        assert slope > 0.0
        assert (above[0] - below[0]) / (2.0 * step) == pytest.approx(slope, rel=1e-6)
        assert (above[1] - below[1]) / (2.0 * step) == pytest.approx(curvature, rel=1e-3, abs=1e-4)
        assert inverse(grid, coefficients, value) == pytest.approx(z, abs=1e-9)


def test_knots_are_continuous(case):
    _, grid, coefficients = case
    for k in range(coefficients.shape[0] + 1):
        knot = grid[0] + k * grid[1]
        below, above = (spline(grid, coefficients, knot + e) for e in (-1e-9, 1e-9))
        np.testing.assert_allclose(below, above, rtol=1e-5, atol=1e-5)


def test_nan_and_infinity_are_preserved(case):
    _, grid, coefficients = case
    assert np.isnan(spline(grid, coefficients, np.nan)[0])
    assert spline(grid, coefficients, np.inf)[0] == np.inf
    assert spline(grid, coefficients, -np.inf)[0] == -np.inf


@pytest.mark.parametrize(
    "slopes",
    [[0.0, 0.0, -1.0], [1.0, 0.0, 0.5], [-1.0, 1.0, -1.0], [1.0, np.nan, -1.0]],
    ids=["flat", "right", "left", "NaN"],
)
def test_no_scores_of_a_density_that_does_not_decrease(slopes):
    assert normal_scores(np.array([-1.0, 0.0, 1.0]), np.array(slopes)) is None


def test_no_scores_of_a_density_whose_tails_overflow():
    x = np.linspace(-700.0, 700.0, 41)
    assert normal_scores(x, -np.sinh(x)) is None
