"""Checks of the mean kinetic temperature in the warm-up."""

import numpy as np
import pytest

from pymc_geodesic.adaptation.step_size_bounds import TemperatureCheck


def signs(mean: float, sd: float, n: int, seed: int = 1) -> list[int]:
    rng = np.random.default_rng(seed)
    check = TemperatureCheck()
    return [check.update(t) for t in mean + sd * rng.standard_normal(n)]


@pytest.mark.parametrize(("mean", "expected"), [(1.2, 1), (0.8, -1)])
def test_a_significant_bias_is_found_once_in_forty_draws(mean, expected):
    found = signs(mean, 0.1, 400)
    assert found == ([0] * 39 + [expected]) * 10


@pytest.mark.parametrize("mean", [0.96, 1.0, 1.04])
def test_small_biases_are_accepted(mean):
    assert not any(signs(mean, 0.05, 4000))


def test_biases_within_their_error_are_accepted():
    assert not any(signs(1.3, 1.0, 39 * 1000, seed=2)[:40])
    assert not any(signs(1.0, 1.0, 4000))


def test_draws_before_a_reset_are_discarded():
    check = TemperatureCheck()
    for _ in range(39):
        check.update(3.0)
    check.reset()
    assert not any(check.update(1.0) for _ in range(200))
