"""Unknown gradient noise: temperature bias, and compensation by thermostats."""

import numpy as np
import pytest
from numba import njit, types
from scipy.optimize import brentq

from pymc_geodesic.adaptation.annealed_parameters import noise_bias, repetition
from pymc_geodesic.integrators import NOT_HARMONIC, Scratch, State
from pymc_geodesic.kernels import sggmc
from pymc_geodesic.runtime.gradient_functions import array_at
from pymc_geodesic.runtime.streams import fill_normal, new_stream
from tests.kernels.drivers import called, friction_of, run_langevin, start, thermostat_errors
from tests.native_functions import native_function
from tests.targets import LIMIT
from tests.targets import VON_MISES_FISHER as TARGET

N_CHAINS = 20_000
STEP, FRICTION = 0.05, 1.5
NOISE = 12.0
"""V, variance of each component of the gradient noise; it adds a fifth to the temperature."""


@pytest.fixture(scope="module")
def noisy_logp_grad():
    log_density = TARGET.log_density

    @njit
    def function(position, argument, context, output):
        value = log_density(position, output)
        noise = np.empty(3)
        fill_normal(array_at(context[0], (2,), types.uint64), noise)
        output += np.sqrt(NOISE) * noise
        return value

    return native_function(function, 3, n_context=1)


@pytest.fixture
def noisy(noisy_logp_grad):
    """Gradient function with noise, and the context with the address of its random stream."""
    stream = new_stream(np.random.default_rng(7))
    context = np.array([stream.ctypes.data], dtype=np.int64)
    yield noisy_logp_grad, context
    assert stream[1] > 0


def run(noisy, known, **options):
    logp_grad, context = noisy
    return run_langevin(
        TARGET,
        logp_grad,
        N_CHAINS,
        known_noise=known,
        friction=FRICTION,
        context=context,
        **options,
    )


@pytest.mark.parametrize("known", [0.0, 0.5])
def test_unknown_noise_adds_the_predicted_temperature(noisy, known):
    bias = noise_bias(STEP, FRICTION * STEP, (1.0 - known) * NOISE)
    assert 0.05 < bias < 0.3
    ends = run(noisy, known * NOISE)
    assert TARGET.worst(ends.x) > LIMIT
    temperature = (ends.v**2).sum(axis=1).mean() / 2.0
    error = np.sqrt(1.0 / N_CHAINS) * (1.0 + bias)
    assert abs(temperature - 1.0 - bias) < LIMIT * error


def balance_of(known):
    """ξ of a thermostat at which the positions have temperature 1, part of the noise known."""
    decay = np.exp(-FRICTION * STEP)
    injected = 1.0 - decay**2 - (0.5 * STEP * (1.0 + decay)) ** 2 * known * NOISE

    def bias(xi):
        whole = np.exp(-xi * STEP) * decay
        of_gradient = noise_bias(STEP, (FRICTION + xi) * STEP, NOISE)
        return np.exp(-xi * STEP) * injected / (1.0 - whole**2) + of_gradient - 1.0

    return brentq(bias, 0.0, 2.0 * FRICTION)


@pytest.mark.parametrize("known", [0.0, 0.5])
def test_thermostat_compensates_unknown_noise(noisy, known):
    """Started at the friction that balances the noise, the target is stationary."""
    balance, inertia = balance_of(known), 2.0
    ends = run(noisy, known * NOISE, inertia=inertia, balance=balance)
    assert balance == pytest.approx(0.5 * STEP * (1.0 - known) * NOISE, rel=0.1)
    assert TARGET.worst(ends.x, ends.v) < LIMIT, TARGET.deviations(ends.x, ends.v)
    assert thermostat_errors(ends, TARGET, inertia, balance) < LIMIT


def test_thermostat_converges_to_the_balance(noisy):
    """From ξ = 0, at which the variance of the positions is too large."""
    ends = run(noisy, 0.0, inertia=0.5, n_steps=200)
    error = ends.thermostats.std() / np.sqrt(N_CHAINS)
    assert ends.thermostats.mean() == pytest.approx(balance_of(0.0), abs=LIMIT * error)


def test_clips_are_counted(noisy):
    logp_grad, context = noisy
    x, v, streams = start(TARGET, 1)
    clips = sggmc(
        called(logp_grad, context), np.zeros(6, dtype=np.int64), TARGET.product.space,
        State(x[0], v[0]), STEP, NOT_HARMONIC, friction_of(3, FRICTION, [0.0, 1e9, 1e9]),
        streams[0], Scratch(np.empty(3), np.empty(3)), np.empty(1),
    )  # fmt: skip
    assert clips == 2


@pytest.mark.parametrize("angle", [0.05, 0.4, 1.0, 2.5])
def test_noise_bias_is_the_stationary_variance(angle):
    """Var of v ← e^{−ρ} v + factor·noise, factor = ε(1 + e^{−ρ})/2."""
    decay = np.exp(-angle)
    expected = (0.1 * 0.5 * (1.0 + decay)) ** 2 * 7.0 / (1.0 - decay**2)
    assert noise_bias(0.1, angle, 7.0) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("repeats", [1, 2, 5, 20])
@pytest.mark.parametrize("angle", [0.1, 1.0])
def test_repeated_noise(angle, repeats):
    """Sum over all past noise; each value acts in ``repeats`` steps."""
    decay = np.exp(-angle)
    variances = []
    for phase in range(1, repeats + 1):
        age = np.arange(2000)
        block = (age - phase) // repeats + 1  # 0 for the noise of the current block
        weights = np.bincount(block.clip(0), weights=decay**age)
        variances.append(np.sum(weights**2))
    assert repetition(decay, repeats) == pytest.approx(
        np.mean(variances) * (1.0 - decay**2), rel=1e-9
    )
