"""Rows of rare coordinates, found by derivatives that are not zero."""

import numpy as np
import pymc as pm
import pytest
from pytensor.raise_op import Assert

import pymc_geodesic as pg
from pymc_geodesic.gradients.rows_of_coordinates import shares_of_rare_coordinates

N_ROWS = 5_000
COUNTS = [1, 2, 25, 61, 400]
ROWS = ["first", "second", "y_data"]


def gradient_of_products(counts, distribution=pm.StudentT):
    """Gradient of rows with products of indicators, in these numbers of rows, and the rows."""
    rng = np.random.default_rng(0)
    first, second = np.zeros((2, N_ROWS, len(counts)))
    for j, count in enumerate(counts):
        both, one = np.split(rng.permutation(N_ROWS)[:2_000], [count])
        first[both, j] = second[both, j] = first[one[:900], j] = second[one[900:], j] = 1.0
    with pm.Model():
        product = pm.Data("first", first) * pm.Data("second", second)
        mean = pm.Normal("a") + product @ pm.Normal("w", shape=len(counts))
        y = pm.Data("y_data", rng.normal(size=N_ROWS))
        shape = {"nu": 4.0, "sigma": 1.0} if distribution is pm.StudentT else {"b": 1.0}
        distribution("y", mu=mean, observed=y, **shape)
        step = pg.SGGMC(minibatch=ROWS, batch_size=50)
    arrays = step.estimator.source.arrays
    return step.adaptation.gradient.total, arrays, (arrays["first"] * arrays["second"])[:N_ROWS]


def shares_of(total, arrays, max_rows, n_partitions=1):
    x = np.random.default_rng(1).normal(scale=1e-3, size=1 + arrays["first"].shape[1])
    return shares_of_rare_coordinates(total, x, arrays, N_ROWS, max_rows, n_partitions)


@pytest.fixture(scope="module")
def smooth():
    return gradient_of_products(COUNTS)


@pytest.mark.parametrize(("max_rows", "n_rare"), [(60, 3), (24, 2), (1, 1), (0, 0)])
def test_coordinates_with_few_rows(smooth, max_rows, n_rare):
    """All of their rows, and no other rows."""
    total, arrays, products = smooth
    expected = (products[:, :n_rare] / COUNTS[:n_rare]).max(axis=1, initial=0.0)
    np.testing.assert_array_equal(shares_of(total, arrays, max_rows), expected)


def test_rows_whose_derivatives_cancel():
    """The derivatives of a Laplace density are 1 and −1; two rows of a block may sum to zero."""
    total, arrays, products = gradient_of_products([150], pm.Laplace)
    shares = shares_of(total, arrays, 200, n_partitions=3)
    np.testing.assert_array_equal(shares, products[:, 0] / 150)


def test_many_coordinates_with_the_same_number_of_rows():
    """Their rows are too many, and none of the coordinates is rarer than the others."""
    total, arrays, _ = gradient_of_products([2, *np.full(60, 20)])
    shares = shares_of(total, arrays, 200)
    assert np.count_nonzero(shares) == np.count_nonzero(shares == 0.5) == 2


def test_gradient_of_rows_is_additive(smooth):
    """The gradients of all parts of the rows sum to that of all, without the prior."""
    total, arrays, _ = smooth
    x = np.random.default_rng(2).normal(size=len(COUNTS) + 1)
    parts = np.split(np.arange(N_ROWS), [1, 1_300])
    found = sum(
        total.gradient_of_rows(x, {name: arrays[name][part] for name in ROWS}, len(part))
        for part in parts
    )
    expected = total.sum_over(x, [(arrays, N_ROWS)], rest=0.0)[:-1]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_error_at_the_position_of_the_search(caplog):
    """It is logged; only a start at which the model raises an error is invalid."""
    with pm.Model() as model:
        a = pm.Normal("a", 5.0, 1.0, initval=5.0)
        mean = Assert("a must be above 1")(a, a > 1.0)
        y = pm.Data("y_data", np.random.default_rng(0).normal(5.0, size=2_000))
        pm.Normal("y", mean, 1.0, observed=y)
        step = pg.SGGMC(minibatch="y_data", batch_size=50, compile_kwargs={"mode": "FAST_COMPILE"})
    with caplog.at_level("INFO", "pymc"):
        step.setup_chain(np.random.default_rng(1), 100, 10)
    assert "a must be above 1" in caplog.text
    point, _ = step.step(model.initial_point())
    assert point["a"] > 1.0
