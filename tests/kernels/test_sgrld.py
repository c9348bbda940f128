"""SGRLD: drift, reflection, and the limit distribution of short steps."""

import math

import numpy as np
from numba import njit
from scipy import stats

from pymc_geodesic.kernels.counts import POSITIVE, SIMPLEX, Prior
from pymc_geodesic.kernels.sgrld import sgrld
from pymc_geodesic.runtime.gradient_functions import Callback
from pymc_geodesic.runtime.streams import fill_normal, new_stream
from tests.native_functions import native_function

NO_CONTEXT = np.zeros(1, dtype=np.int64)
BLOCKS = np.array([[SIMPLEX, 0, 1, 3], [POSITIVE, 3, 1, 1]], dtype=np.int64)
PRIOR = Prior(np.array([0.4, 1.5, 3.0, 2.0]), np.array([1.0, 1.0, 1.0, 3.0]))
UNIT = np.array([1.0, 1.0, 1.0, 6.0])


@njit
def multinomial_and_poisson(position, argument, context, output):
    output[0] = 2.0 / position[0]
    output[1] = 0.0
    output[2] = 9.0 / position[2]
    output[3] = 4.0 / position[3] - 2.0
    return 0.0


def advance(logp_grad, log_state, step_size, n_steps, stream):
    arguments = np.zeros(n_steps, dtype=np.int64)
    return sgrld(
        Callback(logp_grad.address, NO_CONTEXT), arguments, BLOCKS, log_state, PRIOR, step_size,
        UNIT, stream, np.empty(4),
    )  # fmt: skip


def test_one_step_is_that_of_the_paper():
    theta = np.array([0.02, 1.0, 8.0, 0.5])
    stream = new_stream(np.random.default_rng(1))
    noise = np.empty(4)
    fill_normal(stream.copy(), noise)
    state = np.log(theta)
    logp_grad = native_function(multinomial_and_poisson, 4)
    assert advance(logp_grad, state, 0.3, 1, stream) == -1
    omega = theta[:3] / theta[:3].sum()
    drift = np.append(
        PRIOR.shape[:3] + np.array([2.0, 0.0, 9.0]) - 11.0 * omega - theta[:3],
        PRIOR.shape[3] + 4.0 - 2.0 * theta[3] - 3.0 * theta[3],
    )
    h = 0.3 / UNIT
    expected = np.abs(theta + h * drift + np.sqrt(2.0 * h * theta) * noise)
    np.testing.assert_allclose(np.exp(state), expected, rtol=1e-12)


def test_short_steps_reach_the_posterior_of_large_components():
    """Beta and gamma marginals away from zero; long steps do not reach them."""
    dist, gamma = stats.beta(12.0, 3.9), stats.gamma(6.0, scale=1.0 / 5.0)
    logp_grad = native_function(multinomial_and_poisson, 4)
    p_values = []
    for step_size in (0.01, 0.7):
        stream = new_stream(np.random.default_rng(2))
        state = np.log([2.0, 1.5, 12.0, 1.2])
        draws = np.empty((1000, 4))
        for draw in draws:
            advance(logp_grad, state, step_size, math.ceil(4.0 / step_size), stream)
            draw[:] = np.exp(state)
        share = draws[:, 2] / draws[:, :3].sum(axis=1)
        p_values.append(min(stats.kstest(share, dist.cdf).pvalue,
                            stats.kstest(draws[:, 3], gamma.cdf).pvalue))  # fmt: skip
    assert p_values[0] > 1e-3
    assert p_values[1] < 1e-6


@njit
def undefined(position, argument, context, output):
    output[:] = 0.0
    output[3] = np.nan
    return 0.0


def test_an_undefined_gradient_stops_before_the_step():
    logp_grad = native_function(undefined, 4)
    state = np.zeros(4)
    assert advance(logp_grad, state, 0.1, 2, new_stream(np.random.default_rng(1))) == 3
    np.testing.assert_array_equal(state, 0.0)
