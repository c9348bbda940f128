"""Exact transition of mean-reverting geometric Brownian motion."""

import math

import numpy as np
import pytest
from numba import njit
from scipy import stats

from pymc_geodesic.kernels.counts import LOG_NORMAL, CountsAt, Prior
from pymc_geodesic.kernels.scir import log_normal_transition, scir
from pymc_geodesic.runtime.gradient_functions import Callback
from pymc_geodesic.runtime.streams import fill_normal, new_stream
from tests.native_functions import native_function

N = 50_000
NO_CONTEXT = np.zeros(1, dtype=np.int64)
NOWHERE = CountsAt(np.empty(0), np.empty(0), np.empty(0))


def stream(seed=1):
    return new_stream(np.random.default_rng(seed))


def transition(state, time, seed=1):
    noise = np.empty(N)
    fill_normal(stream(seed), noise)
    log_normal_transition(state, np.full(N, 3.0), np.full(N, 6.0), np.full(N, time), noise)
    return state


@pytest.mark.parametrize("time", [1e-3, 0.5, 20.0])
def test_the_transition_is_that_of_the_process(time):
    """Mean and variance of the Ornstein–Uhlenbeck process of the logarithm."""
    decay = math.exp(-time)
    dist = stats.norm(0.5 + decay * (4.0 - 0.5), math.sqrt((1.0 - decay**2) / 6.0))
    assert stats.kstest(transition(np.full(N, 4.0), time), dist.cdf).pvalue > 1e-4


def test_two_transitions_are_one_of_twice_the_time():
    once = transition(np.full(N, 4.0), 0.6)
    twice = transition(transition(np.full(N, 4.0), 0.3), 0.3, seed=2)
    assert stats.ks_2samp(once, twice).pvalue > 1e-3


@njit
def log_normal_likelihood(position, argument, context, output):
    """Gradient of A log θ − B (log θ)²/2, where A has the mean 3 or −0.75 and the variance 1."""
    for i in range(position.size):
        b, a = (5.0, 3.0) if i % 2 == 0 else (0.25, -0.75)
        shift = 1.0 - 2.0 * argument
        output[i] = (a + shift - b * math.log(position[i])) / position[i]
    return 0.0


def run(logp_grad, state, arguments, step_size, own):
    """Run the kernel on pairs of variables with the priors N(1, 1) and N(8, 4)."""
    size = state.size
    found = CountsAt(*np.empty((3, size)))
    n = size // 2
    failed, clips = scir(
        Callback(logp_grad.address, NO_CONTEXT), np.asarray(arguments, dtype=np.int64),
        np.array([[LOG_NORMAL, 0, 1, size]], dtype=np.int64), state,
        Prior(np.tile([1.0, 2.0], n), np.tile([1.0, 0.25], n)), step_size,
        np.tile([6.0, 0.5], n), np.empty(0), NOWHERE, own, found,
    )  # fmt: skip
    assert clips == 0
    return failed, found.exposures


@pytest.mark.parametrize("step_size", [0.1, 3.0])
def test_the_posterior_of_log_normal_data_is_exact_at_any_step(step_size):
    state = np.zeros(N)
    failed, exposures = run(
        native_function(log_normal_likelihood, N), state, np.zeros(math.ceil(20.0 / step_size)),
        step_size, stream(),
    )  # fmt: skip
    assert failed == -1
    np.testing.assert_allclose(exposures.reshape(-1, 2), np.tile([5.0, 0.25], (N // 2, 1)))
    for column, pull, precision in ((0, 1.0 + 4.0, 6.0), (1, 2.0 + 0.25, 0.5)):
        dist = stats.norm(pull / precision, precision**-0.5)
        assert stats.kstest(state[column::2], dist.cdf).pvalue > 1e-4


def test_noise_inflates_the_variance_by_the_hyperbolic_tangent():
    """Estimates of A have variance 1, so the variance of log θ grows by tanh(h/2)/B²."""
    step_size, n = 1.0, 3000
    rng, own = np.random.default_rng(6), stream(7)
    state = np.zeros((n, 2))
    logp_grad = native_function(log_normal_likelihood, 2)
    for chain in state:
        run(logp_grad, chain, rng.integers(2, size=25), step_size, own)
    for column, precision in ((0, 6.0), (1, 0.5)):
        expected = 1.0 / precision + math.tanh(0.5 * step_size) / precision**2
        error = expected * math.sqrt(2.0 / n)
        assert abs(state[:, column].var() - expected) < 5.0 * error


@njit
def not_log_concave(position, argument, context, output):
    output[:] = np.log(position) / position
    return 0.0


def test_a_negative_precision_stops():
    state = np.ones(2)
    assert run(native_function(not_log_concave, 2), state, [0], 0.1, stream())[0] == 0
    np.testing.assert_array_equal(state, 1.0)
