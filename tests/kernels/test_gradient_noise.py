"""Noisy gradients: heat that is predicted, taken off, or held by a thermostat."""

import numpy as np
import pytest
from numba import types
from scipy.optimize import brentq

from pymc_geodesic.integrators import EXACT, Scratch, State, Thermostat
from pymc_geodesic.kernels import gsgnht, sggmc
from pymc_geodesic.kernels.sggmc import HeatBath
from pymc_geodesic.runtime.fields import array_at, native_field
from pymc_geodesic.runtime.streams import fill_normal, new_stream
from pymc_geodesic.tuning.temperature import noise_excess, repetition
from tests.kernels.drivers import called, run_sggmc, start
from tests.machine_code import kept
from tests.targets import LIMIT
from tests.targets import VON_MISES_FISHER as TARGET

N_CHAINS = 20_000
STEP, FRICTION = 0.05, 1.5
NOISE = 12.0
"""V, variance of each component of the gradient noise; it heats by a fifth."""


@pytest.fixture(scope="module")
def noisy_field():
    log_density = TARGET.log_density

    @kept
    def function(position, argument, context, output):
        value = log_density(position, output)
        noise = np.empty(3)
        fill_normal(array_at(context[0], (2,), types.uint64), noise)
        output += np.sqrt(NOISE) * noise
        return value

    return native_field(function, 3, n_context=1)


@pytest.fixture
def noisy(noisy_field):
    """Field with gradient noise, and the context that points at the stream of the noise."""
    stream = new_stream(np.random.default_rng(7))
    context = np.array([stream.ctypes.data], dtype=np.int64)
    yield noisy_field, context
    assert stream[1] > 0


@pytest.fixture(scope="module")
def excess():
    return noise_excess(STEP, FRICTION * STEP, NOISE)


def run(noisy, known):
    field, context = noisy
    return run_sggmc(TARGET, field, N_CHAINS, gradient_noise=known, context=context)


def test_known_noise_is_exact(noisy):
    x, v = run(noisy, np.full(3, NOISE))
    assert TARGET.worst(x, v) < LIMIT, TARGET.deviations(x, v)


def test_unknown_noise_heats_as_predicted(noisy, excess):
    assert 0.1 < excess < 0.3
    x, v = run(noisy, np.empty(0))
    assert TARGET.worst(x) > LIMIT
    temperature = (v**2).sum(axis=1).mean() / 2.0
    error = np.sqrt(1.0 / N_CHAINS) * (1.0 + excess)
    assert abs(temperature - 1.0 - excess) < LIMIT * error


def test_half_of_the_noise_known_is_half_as_hot(noisy, excess):
    _, v = run(noisy, np.full(3, 0.5 * NOISE))
    temperature = (v**2).sum(axis=1).mean() / 2.0
    assert abs(temperature - 1.0 - 0.5 * excess) < LIMIT * 1.2 * np.sqrt(1.0 / N_CHAINS)


def test_thermostat_holds_the_temperature(noisy, excess):
    """Started at the friction that balances the noise, the target is stationary."""
    field, context = noisy

    def surplus(xi):
        return FRICTION / xi + noise_excess(STEP, xi * STEP, NOISE) - 1.0

    balance = brentq(surplus, FRICTION, 3.0 * FRICTION)
    inertia = 2.0
    x, v, streams = start(TARGET, N_CHAINS)
    spread = 1.0 / np.sqrt(2.0 * inertia)
    thermostats = balance + spread * np.random.default_rng(4).standard_normal((N_CHAINS, 1))
    for chain in range(N_CHAINS):
        gsgnht(
            called(field, context), np.zeros(40, dtype=np.int64), TARGET.product.space,
            State(x[chain], v[chain]),
            Thermostat(thermostats[chain], np.array([inertia]), np.ones(1)), STEP,
            HeatBath(np.array([FRICTION]), np.empty(0), EXACT), streams[chain],
            Scratch(np.empty(3), np.empty(3)), np.empty((1, 2)),
        )  # fmt: skip
    assert balance > 1.1 * FRICTION
    assert TARGET.worst(x, v) < LIMIT, TARGET.deviations(x, v)
    deviation = (thermostats.mean() - balance) / spread
    assert abs(deviation) * np.sqrt(N_CHAINS) < LIMIT


def test_clips_are_counted(noisy):
    field, context = noisy
    x, v, streams = start(TARGET, 1)
    too_much = np.array([0.0, 1e9, 1e9])
    _, clips = sggmc(
        called(field, context), np.zeros(6, dtype=np.int64), TARGET.product.space,
        State(x[0], v[0]), STEP, HeatBath(np.array([FRICTION]), too_much, EXACT), streams[0],
        Scratch(np.empty(3), np.empty(3)),
    )  # fmt: skip
    assert clips == 2 * 6


@pytest.mark.parametrize("angle", [0.05, 0.4, 1.0, 2.5])
def test_noise_excess_is_the_stationary_variance(angle):
    """Var of v ← e^{−ρ} v + push·noise, push = ε(1 + e^{−ρ})/2."""
    decay = np.exp(-angle)
    expected = (0.1 * 0.5 * (1.0 + decay)) ** 2 * 7.0 / (1.0 - decay**2)
    assert noise_excess(0.1, angle, 7.0) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("repeats", [1, 2, 5, 20])
@pytest.mark.parametrize("angle", [0.1, 1.0])
def test_repeated_noise(angle, repeats):
    """Sum over all past noise, each value of which acts in ``repeats`` steps."""
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
