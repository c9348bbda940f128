"""Schedules of step sizes."""

import numpy as np
import pytest

from pymc_geodesic import PolynomialDecay


def test_decay_is_the_formula():
    schedule = PolynomialDecay(0.2, b=4.0, gamma=0.5)
    np.testing.assert_allclose([schedule(0), schedule(12)], [0.2, 0.1])


@pytest.mark.parametrize(
    "change", [{"h0": 0.0}, {"h0": np.nan}, {"b": 0.0}, {"b": -1.0}, {"gamma": -0.5}]
)
def test_numbers_that_make_no_schedule(change):
    with pytest.raises(ValueError, match="h0 and b must be positive"):
        PolynomialDecay(**({"h0": 0.1, "b": 10.0, "gamma": 0.6} | change))
