"""Log-normal laws by mean-reverting geometric Brownian motion."""

import math

import numpy as np
import pytest
from numba import njit
from scipy import stats

from pymc_geodesic.fields import native_field
from pymc_geodesic.kernels.geometric_brownian import geometric_brownian, log_normal_transition
from pymc_geodesic.streams import fill_normal, new_stream

N = 50_000
NO_CONTEXT = np.zeros(1, dtype=np.int64)


def stream(seed=1):
    return new_stream(np.random.default_rng(seed))


def transitions(start, time, n):
    noise = np.empty(n)
    fill_normal(stream(), noise)
    state = np.full(n, start)
    log_normal_transition(state, np.full(n, 3.0), np.full(n, 6.0), np.full(n, time), noise)
    return state


@pytest.mark.parametrize("time", [1e-3, 0.5, 20.0])
def test_the_transition_is_that_of_the_process(time):
    """Mean and variance of the Ornstein–Uhlenbeck process of the logarithm."""
    decay = math.exp(-time)
    law = stats.norm(0.5 + decay * (4.0 - 0.5), math.sqrt((1.0 - decay**2) / 6.0))
    assert stats.kstest(transitions(4.0, time, N), law.cdf).pvalue > 1e-4


def test_two_transitions_are_one_of_twice_the_time():
    once = stats.norm.fit(transitions(4.0, 0.6, N))
    halves = transitions(4.0, 0.3, N)
    noise = np.empty(N)
    fill_normal(stream(2), noise)
    log_normal_transition(halves, np.full(N, 3.0), np.full(N, 6.0), np.full(N, 0.3), noise)
    np.testing.assert_allclose(stats.norm.fit(halves), once, atol=0.01)


@njit
def log_normal_likelihood(position, argument, context, output):
    """Gradient of −½ B (log θ − m)², B and m by component, with noise in the argument."""
    for i in range(position.size):
        component = i % 2
        b = 5.0 if component == 0 else 0.25
        m = 0.6 if component == 0 else -3.0
        shift = 1.0 - 2.0 * argument
        output[i] = (-b * (math.log(position[i]) - m) + shift) / position[i]
    return 0.0


def chains(n, n_steps, step_size):
    """Ends of many chains side by side, with one and the same minibatch."""
    field = native_field(log_normal_likelihood, 2 * n)
    arguments = np.zeros(n_steps, dtype=np.int64)
    state = np.zeros(2 * n)
    precision = np.empty(2 * n)
    failed = geometric_brownian(
        field.address, NO_CONTEXT, arguments, state, np.tile([1.0, 2.0], n),
        np.tile([1.0, 0.25], n), np.tile([6.0, 0.5], n), step_size, stream(), precision,
    )  # fmt: skip
    assert failed == -1
    np.testing.assert_allclose(precision.reshape(n, 2), np.tile([5.0, 0.25], (n, 1)))
    return state.reshape(n, 2)


def test_the_posterior_of_log_normal_data_is_exact_at_any_step():
    """Prior N(1/B₀·pull, B₀) times likelihood, and the shift of the one minibatch."""
    for step_size in (0.1, 3.0):
        draws = chains(N // 2, math.ceil(30.0 / step_size), step_size)
        for column, pull, precision in ((0, 1.0 + 3.0 + 1.0, 6.0), (1, 2.0 - 0.75 + 1.0, 0.5)):
            law = stats.norm(pull / precision, precision**-0.5)
            assert stats.kstest(draws[:, column], law.cdf).pvalue > 1e-4


def test_noise_widens_the_law_by_the_hyperbolic_tangent():
    """Estimates of the pull have variance 1, so the logarithm's grows by tanh(h/2)/B²."""
    step_size, n = 1.0, 4000
    field = native_field(log_normal_likelihood, 2)
    rng = np.random.default_rng(6)
    own = stream(7)
    state = np.zeros((n, 2))
    for chain in state:
        geometric_brownian(
            field.address, NO_CONTEXT, rng.integers(2, size=25), chain, np.array([1.0, 2.0]),
            np.array([1.0, 0.25]), np.array([6.0, 0.5]), step_size, own, np.empty(2),
        )  # fmt: skip
    for column, precision in ((0, 6.0), (1, 0.5)):
        expected = 1.0 / precision + math.tanh(0.5 * step_size) / precision**2
        error = expected * math.sqrt(2.0 / n)
        assert abs(state[:, column].var() - expected) < 5.0 * error


@njit
def not_log_concave(position, argument, context, output):
    output[:] = np.log(position) / position
    return 0.0


def test_a_precision_that_is_not_positive_stops():
    field = native_field(not_log_concave, 2)
    state = np.ones(2)
    failed = geometric_brownian(
        field.address, NO_CONTEXT, np.zeros(1, dtype=np.int64), state, np.zeros(2),
        np.array([2.0, 0.5]), np.ones(2), 0.1, stream(), np.empty(2),
    )  # fmt: skip
    assert failed == 1
    np.testing.assert_array_equal(state, 1.0)
