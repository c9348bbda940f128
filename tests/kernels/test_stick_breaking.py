"""Stick-breaking weights."""

import numpy as np
import pytest

from pymc_geodesic.kernels.stick_breaking import (
    log_stick_breaking_weights,
    stick_breaking_weights,
    stick_proportions,
)


def test_weights_are_proportions_of_the_remainder():
    shares = np.array([0.5, 0.2, 0.9])
    pieces = log_stick_breaking_weights(np.log(shares), np.log(1.0 - shares))
    np.testing.assert_allclose(0.4 * np.exp(pieces), [0.2, 0.04, 0.144, 0.016])


@pytest.mark.parametrize("n", [0, 1, 7])
def test_sticks_and_weights_are_inverse(n):
    sticks = np.random.default_rng(1).beta(1.0, 2.0, size=(3, 2, n))
    weights = stick_breaking_weights(sticks)
    np.testing.assert_allclose(weights.sum(axis=-1), 1.0, rtol=1e-14)
    np.testing.assert_allclose(stick_proportions(weights), sticks, rtol=1e-12)


def test_zero_and_one_proportions_have_weights():
    assert stick_breaking_weights(np.array([0.0, 1.0, 0.5])).tolist() == [0.0, 1.0, 0.0, 0.0]
    found = stick_proportions(np.array([0.0, 1.0, 0.0, 0.0]))
    assert np.all((found > 0.0) & (found < 1.0))
    np.testing.assert_allclose(stick_breaking_weights(found), [0.0, 1.0, 0.0, 0.0], atol=1e-15)
