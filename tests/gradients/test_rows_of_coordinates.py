"""Rows of rare coordinates, found by gradients that are zero."""

import numpy as np
import pymc as pm
import pytest

import pymc_geodesic as pg
from pymc_geodesic.gradients.rows_of_coordinates import shares_of_rare_coordinates

N_ROWS, MAX_ROWS = 5_000, 60
COUNTS = [1, 2, 25, 61, 400]


@pytest.fixture(scope="module")
def total_and_rows():
    """Gradient of rows with products of indicators, in these numbers of rows."""
    rng = np.random.default_rng(0)
    first, second = np.zeros((2, N_ROWS, len(COUNTS)))
    for j, count in enumerate(COUNTS):
        both, one = np.split(rng.permutation(N_ROWS)[:2_000], [count])
        first[both, j] = second[both, j] = first[one[:900], j] = second[one[900:], j] = 1.0
    y = rng.normal(size=N_ROWS)
    with pm.Model():
        first_data, second_data = pm.Data("first", first), pm.Data("second", second)
        mean = pm.Normal("a") + (first_data * second_data) @ pm.Normal("w", shape=len(COUNTS))
        pm.StudentT("y", 4.0, mean, sigma=pm.HalfNormal("sd"), observed=pm.Data("y_data", y))
        step = pg.SGGMC(minibatch=["first", "second", "y_data"], batch_size=50)
    return step.adaptation.gradient.total, step.estimator.source.arrays


def shares_of(total, arrays, max_rows):
    x = np.random.default_rng(1).normal(size=len(COUNTS) + 2)
    return shares_of_rare_coordinates(total, x, arrays, N_ROWS, max_rows)


@pytest.mark.parametrize(("max_rows", "n_rare"), [(60, 3), (27, 2), (2, 1), (0, 0)])
def test_coordinates_with_few_rows(total_and_rows, max_rows, n_rare):
    """All rows of these coordinates, the rarest first, and no other rows."""
    total, arrays = total_and_rows
    products = (arrays["first"] * arrays["second"])[:N_ROWS, :n_rare]
    expected = (products / COUNTS[:n_rare]).max(axis=1, initial=0.0)
    np.testing.assert_array_equal(shares_of(total, arrays, max_rows), expected)


def test_gradient_of_rows_is_additive(total_and_rows):
    """The gradients of all parts of the rows sum to that of all, without the prior."""
    total, arrays = total_and_rows
    x = np.random.default_rng(2).normal(size=len(COUNTS) + 2)
    parts = [(0, 1), (1, 1_300), (1_300, N_ROWS)]
    found = sum(total.gradient_of_rows(x, arrays, *part) for part in parts)
    expected = total.sum_over(x, [(arrays, N_ROWS)], rest=0.0)[:-1]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
