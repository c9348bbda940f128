"""Variance inflation by noisy estimates, against simulation of the recursion."""

import math

import numpy as np
import pytest

from pymc_geodesic.adaptation.variance_inflation import (
    allowed_inflation,
    independent_inflation,
    longest_time,
    shuffled_inflation,
)


def simulated(time, epochs, order):
    """Variance of x' = e⁻ʰ x + (1 − e⁻ʰ) â for estimates of variance 1, in given orders.

    ``epochs(rng)`` are indices of estimates, shape (chains, steps of an epoch).
    """
    rng = np.random.default_rng(1)
    size = order.size
    decay = math.exp(-time)
    x = np.zeros(len(epochs(rng)))
    seen = []
    for epoch in range(math.ceil(5.0 / (time * size)) + 20):
        for column in epochs(rng).T:
            x = decay * x + (1.0 - decay) * order[column]
            if epoch >= math.ceil(5.0 / (time * size)):
                seen.append(np.mean(x**2))
    return np.mean(seen)


def deviations(size):
    values = np.random.default_rng(2).standard_normal(size)
    values -= values.mean()
    return values / values.std(ddof=1)


@pytest.mark.parametrize(("time", "size"), [(0.3, 5), (0.05, 20), (2.0, 10), (0.01, 40)])
def test_shuffled_blocks(time, size):
    chains = 3000

    def epochs(rng):
        return rng.permuted(np.tile(np.arange(size), (chains, 1)), axis=1)

    found = simulated(time, epochs, deviations(size))
    assert found == pytest.approx(shuffled_inflation(time, size), rel=0.05)


@pytest.mark.parametrize("time", [0.05, 2.0])
def test_independent_blocks(time):
    values = deviations(10) * math.sqrt(10 / 9)

    def epochs(rng):
        return rng.integers(10, size=(3000, 10))

    assert simulated(time, epochs, values) == pytest.approx(independent_inflation(time), rel=0.05)


def test_limits_of_shuffled_blocks():
    assert shuffled_inflation(0.3, 1) == 0.0
    short = shuffled_inflation(1e-3, 20) / independent_inflation(1e-3)
    assert short == pytest.approx(1e-3 * 20 / 3.0, rel=0.05)
    assert shuffled_inflation(10.0, 200) == pytest.approx(independent_inflation(10.0), rel=0.01)


def test_maximum_time_has_the_allowed_inflation():
    time = longest_time(lambda h: 99.0 * shuffled_inflation(h, 100), 0.05, 5.0)
    assert 99.0 * shuffled_inflation(time, 100) == pytest.approx(0.05)
    assert longest_time(lambda h: 99.0 * independent_inflation(h), 0.05, 5.0) == pytest.approx(
        2.0 * math.atanh(0.05 / 99.0)
    )
    assert longest_time(lambda h: 0.0, 0.05, 5.0) == 5.0


@pytest.mark.parametrize("n_tune", [0, 1, 2, 3, 4, 10, 1000])
def test_final_step_size_inflates_by_five_per_cent(n_tune):
    """For tuning phases of any length; only before the last tuning draw it may be larger."""
    allowed = [allowed_inflation(draw, n_tune) for draw in range(n_tune or 1)]
    assert allowed[-1] == pytest.approx(0.05)
    assert allowed == sorted(allowed, reverse=True)
    assert n_tune < 2 or allowed[0] == pytest.approx(10.0)
