"""CIR transition against its density, and SCIR chains against theorem 3.1."""

import math

import numpy as np
import pytest
from numba import njit
from scipy import integrate, special, stats

from pymc_geodesic.kernels.counts import (
    POSITIVE,
    SIMPLEX,
    CountsAt,
    Prior,
    estimate_counts,
    values_from_logs,
)
from pymc_geodesic.kernels.scir import cir_transition, scir
from pymc_geodesic.runtime.gradient_functions import Callback
from pymc_geodesic.runtime.jit import FAST_MATH
from pymc_geodesic.runtime.streams import new_stream
from pymc_geodesic.runtime.variates import fill_log_gamma, fill_poisson
from tests.grids import slow
from tests.native_functions import native_function

N = 100_000
ZERO, ONE = np.zeros(1), np.ones(1)
NO_CONTEXT = np.zeros(1, dtype=np.int64)
NO_TOTALS = np.empty(0)
NOWHERE = CountsAt(np.empty(0), np.empty(0), np.empty(0))


def stream(seed=1):
    return new_stream(np.random.default_rng(seed))


def cir_cdf(shape, state, time):
    """Distribution function of log θ after a time, from the non-central χ² distribution."""
    scale = 0.5 * -math.expm1(-time)
    return lambda x: stats.ncx2.cdf(np.exp(x) / scale, 2.0 * shape, state / math.expm1(time) * 2.0)


CASES = [
    (0.1, 0.5, 0.3), (0.1, 1e-8, 0.3), (1e-3, 0.2, 1.0), (3.0, 2.0, 0.05), (0.7, 40.0, 0.5),
    (800.0, 750.0, 0.1), (0.5, 30.0, 5.0),
]  # fmt: skip


def check_transition(transition, seed=1):
    """Smallest p-value over the cases."""
    worst = 1.0
    for shape, state, time in CASES:
        log_state = np.full(N, math.log(state))
        transition(log_state, np.full(N, shape), ZERO, np.full(1, time), stream(seed))
        # Where mass lies below the range of doubles, distributions are compared above 1e-290.
        seen = np.maximum(log_state, math.log(1e-290))
        dist = cir_cdf(shape, state, time)
        low = dist(np.array([math.log(1e-290)]))[0]
        above = seen[seen > math.log(1e-290)]
        share = stats.binomtest(len(seen) - len(above), N, min(low, 1.0)).pvalue if low else 1.0
        p_value = stats.kstest(
            above, lambda x, dist=dist, low=low: (dist(x) - low) / (1.0 - low)
        ).pvalue
        worst = min(worst, p_value, share)
    return worst


def test_the_transition_has_the_non_central_chi_squared_distribution():
    assert check_transition(cir_transition) > 1e-4


def test_the_transition_density_solves_the_process():
    """Mean and variance of the distribution above are those of dθ = (a − θ)dt + √(2θ) dW."""
    for shape, state, time in CASES:
        dist = stats.ncx2(
            2.0 * shape, 2.0 * state / math.expm1(time), scale=0.5 * -math.expm1(-time)
        )
        decay = math.exp(-time)
        assert dist.mean() == pytest.approx(state * decay + shape * (1 - decay), rel=1e-9)
        variance = 2 * state * (decay - decay**2) + shape * (1 - decay) ** 2
        assert dist.var() == pytest.approx(variance, rel=1e-9)


@pytest.mark.parametrize("state", [-700.0, -1e5])
def test_underflowing_states_keep_their_logarithm(state):
    """From a tiny state, θ is a gamma variate times 1 − e⁻ʰ and never zero."""
    log_state = np.full(N, state)
    cir_transition(log_state, np.full(N, 1e-3), ZERO, np.full(1, 0.4), stream())
    assert np.isfinite(log_state).all()
    gammas = np.empty(N)
    fill_log_gamma(stream(3), np.full(N, 1e-3), gammas)
    gammas += math.log(-math.expm1(-0.4))
    assert stats.ks_2samp(log_state, gammas).pvalue > 1e-4


@pytest.mark.parametrize("shape", [1e-3, 0.1, 1.0, 50.0])
def test_the_gamma_distribution_is_stationary(shape):
    start, end = np.empty((2, N))
    fill_log_gamma(stream(5), np.full(N, shape), start)
    end[:] = start
    for _ in range(3):
        cir_transition(end, np.full(N, shape), ZERO, np.full(1, 0.3), stream(6))
    exact = np.empty(N)
    fill_log_gamma(stream(7), np.full(N, shape), exact)
    assert stats.ks_2samp(end, exact).pvalue > 1e-4
    assert not np.array_equal(start, end)


def test_a_rate_scales_the_state_and_the_time():
    """b θ of the process with rate b is the process with rate 1, over b times the time."""
    shape, rate, time = 2.5, 40.0, 0.2
    start = np.linspace(-3.0, 2.0, 1000)
    plain, scaled = start.copy(), start - math.log(rate)
    cir_transition(plain, np.full(1000, shape), ZERO, np.full(1, rate * time), stream())
    cir_transition(
        scaled, np.full(1000, shape), np.full(1000, math.log(rate)), np.full(1000, rate * time),
        stream(),
    )  # fmt: skip
    np.testing.assert_allclose(scaled + math.log(rate), plain, atol=1e-12)


like_the_kernel = njit(error_model="numpy", fastmath=FAST_MATH)


@like_the_kernel
def without_mixture(log_state, shape, log_rate, time, stream):
    """Mutant: the mean of the Poisson variate instead of a draw."""
    shapes = shape + np.exp(log_state) / math.expm1(time[0])
    fill_log_gamma(stream, shapes, log_state)
    log_state += math.log(-math.expm1(-time[0]))


@like_the_kernel
def doubled_centrality(log_state, shape, log_rate, time, stream):
    """Mutant: the non-centrality is the rate of the Poisson variate."""
    counts = np.empty(shape.size)
    fill_poisson(stream, 2.0 * np.exp(log_state) / math.expm1(time[0]), counts)
    fill_log_gamma(stream, shape + counts, log_state)
    log_state += math.log(-math.expm1(-time[0]))


@like_the_kernel
def halved_freedom(log_state, shape, log_rate, time, stream):
    """Mutant: a degrees of freedom for 2a."""
    cir_transition(log_state, 0.5 * shape, log_rate, time, stream)


@like_the_kernel
def euler(log_state, shape, log_rate, time, stream):
    """Mutant: the first-order coefficients of the time."""
    counts = np.empty(shape.size)
    fill_poisson(stream, np.exp(log_state) / time[0], counts)
    fill_log_gamma(stream, shape + counts, log_state)
    log_state += math.log(time[0])


@pytest.mark.parametrize(
    "mutant", [euler, *map(slow, (without_mixture, doubled_centrality, halved_freedom))]
)
def test_mutants_of_the_transition_are_rejected(mutant):
    assert check_transition(mutant) < 1e-8


# SCIR chains with noise: the argument of the gradient function picks one of two minibatches.

COUNTS = np.array([[0.0, 3.0, 40.0], [1.0, 9.0, 0.0]])


@njit
def two_minibatches(position, argument, context, output):
    """Gradient of the log of Π ω^n for one of two minibatches; every chain sees the same."""
    for chain in range(position.size // 3):
        for j in range(3):
            output[3 * chain + j] = COUNTS[argument, j] / position[3 * chain + j]
    return 0.0


def noisy_chains(n, steps, step_size, start, prior):
    """θ of ``n`` independent chains after some steps, each with its own minibatches."""
    logp_grad = native_function(two_minibatches, 3)
    callback, priors = Callback(logp_grad.address, NO_CONTEXT), Prior(prior, np.ones(3))
    rng = np.random.default_rng(3)
    arguments = rng.integers(2, size=(n, steps))
    blocks = np.array([[SIMPLEX, 0, 1, 3]], dtype=np.int64)
    log_state = np.tile(np.log(start), (n, 1))
    found = CountsAt(*np.empty((3, 3)))
    own = stream(4)
    for chain in range(n):
        failed, clips = scir(
            callback, arguments[chain], blocks, log_state[chain], priors, step_size, np.ones(3),
            NO_TOTALS, NOWHERE, own, found,
        )  # fmt: skip
        assert (failed, clips) == (-1, 0)
    return np.exp(log_state)


@pytest.fixture(scope="module")
def chains():
    prior = np.array([0.1, 0.5, 2.0])
    start = np.array([0.3, 12.0, 1.0])
    steps, step_size = 5, 0.35
    return prior, start, steps, step_size, noisy_chains(30_000, steps, step_size, start, prior)


def test_moment_generating_function_of_theorem_3_1(chains):
    prior, start, steps, h, theta = chains
    for j in range(3):
        a = prior[j] + COUNTS[:, j].mean()
        for s in (-0.02, -0.3, -2.0, 0.01):
            decay = math.exp(-steps * h)
            free = 1.0 - s * (1.0 - decay)
            exact = free**-a * math.exp(start[j] * s * decay / free)
            for m in range(1, steps + 1):
                base = (1 - s * (1 - math.exp(-m * h))) / (1 - s * (1 - math.exp(-(m - 1) * h)))
                # mean over the two minibatches of base^-(â - a)
                exact *= np.mean(base ** -(prior[j] + COUNTS[:, j] - a))
            values = np.exp(s * theta[:, j])
            error = values.std() / math.sqrt(len(values))
            assert abs(values.mean() - exact) < 5.0 * error, (j, s)


def test_mean_and_variance_of_corollary_3_2(chains):
    prior, start, steps, h, theta = chains
    decay, n = math.exp(-steps * h), len(theta)
    for j in range(3):
        a, noise = prior[j] + COUNTS[:, j].mean(), COUNTS[:, j].var()
        mean = start[j] * decay + a * (1 - decay)
        variance = 2 * start[j] * (decay - decay**2) + a * (1 - decay) ** 2
        variance += (1 - decay**2) * math.tanh(0.5 * h) * noise
        sample = theta[:, j]
        assert abs(sample.mean() - mean) < 5 * sample.std() / math.sqrt(n)
        square = (sample - mean) ** 2
        assert abs(square.mean() - variance) < 5 * square.std() / math.sqrt(n)


# Counts and exposures.


@njit
def poisson_like(position, argument, context, output):
    """Two components of a simplex, counts 3 and 5; two Gamma variables, θ⁷ e^(−2θ) and e^(−θ/2)."""
    output[0] = 3.0 / position[0]
    output[1] = 5.0 / position[1]
    output[2] = 7.0 / position[2] - 2.0
    output[3] = -0.5
    return 0.0


BLOCKS = np.array([[SIMPLEX, 0, 1, 2], [POSITIVE, 2, 1, 2]], dtype=np.int64)


@pytest.mark.parametrize("log_theta", [[0.0, 1.0], [-600.0, 4.0]])
def test_counts_and_exposures_are_distinguished(log_theta):
    logp_grad = native_function(poisson_like, 4)
    values, counts, exposures = np.empty((3, 4))
    values_from_logs(BLOCKS, np.array([-900.0, 2.0, *log_theta]), values)
    before = values.copy()
    found = CountsAt(values, counts, exposures)
    failed = estimate_counts(Callback(logp_grad.address, NO_CONTEXT), 0, BLOCKS, found)
    assert failed == -1
    np.testing.assert_array_equal(values, before)
    np.testing.assert_allclose(counts, [3, 5, 7, 0], rtol=1e-12)
    np.testing.assert_allclose(exposures[[0, 1, 3]], [0.0, 0.0, 0.5], atol=1e-12)
    if log_theta[0] == 0.0:
        assert exposures[2] == pytest.approx(2.0)


def test_values_are_probabilities_and_never_zero():
    values = np.empty(6)
    blocks = np.array([[SIMPLEX, 0, 2, 2], [POSITIVE, 4, 1, 2]], dtype=np.int64)
    values_from_logs(blocks, np.array([-1e6, 5.0, 800.0, 801.0, -1e6, 3.0]), values)
    assert values[0] == 1e-290
    assert values[4] == 1e-290
    np.testing.assert_allclose(values[[1, 3]], [1.0, 1.0 / (1.0 + math.exp(-1.0))])
    assert values[5] == pytest.approx(math.exp(3.0))


@njit
def negative(position, argument, context, output):
    output[0] = 1.0
    output[1] = -4.0 if argument else 2.0
    return 0.0


def run_two(function, arguments, state):
    logp_grad = native_function(function, 2)
    return scir(
        Callback(logp_grad.address, NO_CONTEXT), np.array(arguments),
        np.array([[SIMPLEX, 0, 1, 2]]), state, Prior(*np.ones((2, 2))), 0.1, np.ones(2),
        NO_TOTALS, NOWHERE, stream(), CountsAt(*np.empty((3, 2))),
    )  # fmt: skip


def test_a_negative_count_stops_before_the_step():
    state, other = np.zeros((2, 2))
    assert run_two(negative, [0, 1, 0], state) == (1, 0)
    run_two(negative, [0], other)
    np.testing.assert_array_equal(state, other)


@njit
def undefined(position, argument, context, output):
    output[:] = np.nan
    return 0.0


def test_an_undefined_count_stops_too():
    assert run_two(undefined, [0], np.zeros(2))[0] == 0


def test_density_of_the_transition_integrates_to_its_cdf():
    """The reference distribution is that of eq. 2.2, whose density contains a Bessel function."""
    shape, state, time = 0.7, 2.0, 0.4
    c = 1.0 / -math.expm1(-time)
    u = c * state * math.exp(-time)

    def density(theta):
        v = c * theta
        order = shape - 1.0
        root = 2.0 * math.sqrt(u * v)
        return c * math.exp(-u - v + root) * (v / u) ** (0.5 * order) * special.ive(order, root)

    dist = cir_cdf(shape, state, time)
    for upper in (0.1, 1.0, 3.0):
        mass = integrate.quad(density, 0.0, upper)[0]
        assert mass == pytest.approx(dist(math.log(upper)), abs=1e-7)


# Counts whose sum depends on ω.


CHAINS = 20_000


@njit
def tilt(position, argument, context, output):
    """Gradient of the log of exp(5 ω₁) for every row of two components."""
    for row in range(position.size // 2):
        output[2 * row] = 5.0
        output[2 * row + 1] = 0.0
    return 0.0


def tilted_chains(count_total, step_size=0.02, steps=250):
    """First component of chains under exp(5 ω₁) that begin with exact draws."""
    rng = np.random.default_rng(2)
    share = np.log1p(rng.random(CHAINS) * math.expm1(5.0)) / 5.0
    begin = 0.0 if math.isnan(count_total) else count_total
    total = rng.gamma(2.0 + begin, size=CHAINS)
    log_state = np.log(total[:, None] * np.column_stack([share, 1.0 - share])).ravel()
    logp_grad = native_function(tilt, 2 * CHAINS)
    ones = np.ones(2 * CHAINS)
    failed, _ = scir(
        Callback(logp_grad.address, NO_CONTEXT), np.zeros(steps, dtype=np.int64),
        np.array([[SIMPLEX, 0, CHAINS, 2]]), log_state, Prior(ones, ones), step_size, ones,
        np.full(2 * CHAINS, count_total), NOWHERE, stream(5), CountsAt(*np.empty((3, 2 * CHAINS))),
    )  # fmt: skip
    assert failed == -1
    theta = np.exp(log_state.reshape(CHAINS, 2))
    return theta[:, 0] / theta.sum(axis=1), theta.sum(axis=1)


def tilted_moments():
    """Mean and standard deviation of the uniform distribution times exp(5 ω₁)."""
    weight = math.expm1(5.0) / 5.0

    def moment(power):
        return integrate.quad(lambda x: x**power * math.exp(5.0 * x), 0, 1)[0] / weight

    return moment(1), math.sqrt(moment(2) - moment(1) ** 2)


@pytest.mark.parametrize("count_total", [slow(1.0), 4.0, slow(9.0)])
def test_counts_whose_sum_depends_on_the_point_leave_the_posterior_invariant(count_total):
    """For every M; the sum of θ is a gamma variate that does not depend on ω."""
    share, total = tilted_chains(count_total)
    mean, sd = tilted_moments()
    assert (mean, sd) == (pytest.approx(0.8068, abs=1e-4), pytest.approx(0.1821, abs=1e-4))
    assert abs(share.mean() - mean) < 4.0 * sd / math.sqrt(CHAINS)
    assert share.std() == pytest.approx(sd, rel=0.04)
    assert stats.kstest(total, stats.gamma(2.0 + count_total).cdf).pvalue > 1e-4
    assert abs(stats.spearmanr(share, total).statistic) < 4.0 / math.sqrt(CHAINS)


def test_counts_without_a_fixed_total_are_biased():
    """The sum of θ has the shape 2 + 5 ω₁, and chains stay longer where it is large."""
    share, total = tilted_chains(math.nan, steps=500)
    assert abs(share.mean() - tilted_moments()[0]) > 10.0 * tilted_moments()[1] / math.sqrt(CHAINS)
    assert stats.spearmanr(share, total).statistic > 0.1


def test_a_total_equal_to_the_sum_of_the_counts_changes_nothing():
    """Where counts are constant; without a total the draws are the same to the last bit."""
    ends = []
    for totals in (NO_TOTALS, np.full(3, math.nan), np.full(3, COUNTS[0].sum())):
        logp_grad = native_function(two_minibatches, 3)
        log_state = np.log([0.3, 12.0, 1.0])
        scir(
            Callback(logp_grad.address, NO_CONTEXT), np.zeros(4, dtype=np.int64),
            np.array([[SIMPLEX, 0, 1, 3]]), log_state, Prior(np.full(3, 0.5), np.ones(3)), 0.25,
            np.ones(3), totals, NOWHERE, stream(), CountsAt(*np.empty((3, 3))),
        )  # fmt: skip
        ends.append(log_state)
    np.testing.assert_array_equal(ends[0], ends[1])
    np.testing.assert_allclose(ends[0], ends[2], rtol=1e-9)
