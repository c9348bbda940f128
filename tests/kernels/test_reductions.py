"""Reduction of the kernels on Euclidean space to the methods that they generalize, in NumPy."""

import numpy as np
import pytest
from numba import njit

from pymc_geodesic.integrators import EXACT, NOT_HARMONIC, PAPER, Scratch, State, Thermostat
from pymc_geodesic.kernels import gmc, gsgnht, sggmc
from pymc_geodesic.kernels.gmc import Chains, Leapfrog, Record
from pymc_geodesic.kernels.gsgnht import CURVATURE_MEMORY
from pymc_geodesic.manifolds import Euclidean, Product
from pymc_geodesic.runtime.streams import fill_normal, new_stream, uniform
from tests.kernels.drivers import called, friction_of
from tests.native_functions import native_function

SIZE = 5
FLAT = Product([("x", Euclidean(SIZE), 1)])
STEP = 0.15
N_STEPS = 25
NO_ENERGIES = np.empty((2, 0))


def unknown():
    """Gradient and log-density of a start that were not computed yet."""
    return np.full(SIZE + 1, np.nan)


def gradient(x):
    """∇ of −Σ (xᵢ²/2 + i sin xᵢ)."""
    return -x - np.arange(SIZE) * np.cos(x)


def log_density(x):
    return -np.sum(0.5 * x**2 + np.arange(SIZE) * np.sin(x))


@njit
def nearly_normal(position, argument, context, output):
    total = 0.0
    for i in range(SIZE):
        output[i] = -position[i] - 0.003 * position[i] ** 2
        total -= 0.5 * position[i] ** 2 + 0.001 * position[i] ** 3
    output[SIZE] = total
    return total


@njit
def compiled_density(position, argument, context, output):
    total = 0.0
    for i in range(SIZE):
        output[i] = -position[i] - i * np.cos(position[i])
        total -= 0.5 * position[i] ** 2 + i * np.sin(position[i])
    if output.size > SIZE:
        output[SIZE] = total
    return total


@pytest.fixture
def state():
    rng = np.random.default_rng(1)
    return rng.standard_normal(SIZE), rng.standard_normal(SIZE), new_stream(rng)


def normals(stream):
    draws = np.empty(SIZE)
    fill_normal(stream, draws)
    return draws


FRICTION = {EXACT: np.array([0.4, 0.9, 1.2, 1.2, 2.5]), PAPER: np.full(SIZE, 0.8)}
"""By coordinate; the splitting of the paper has one friction for each variable."""

KNOWN = np.array([0.0, 2.0, 3.0, 0.0, 1.0])
"""Known variance of the gradient, by coordinate."""


def friction_and_noise(v, force, thermostat, splitting, noise):
    """One kick of SGHMC: by halves of friction, or by halves of the gradient."""
    before, half = np.exp(-0.5 * thermostat * STEP), np.exp(-0.5 * FRICTION[splitting] * STEP)
    if splitting == PAPER:
        noise = np.sqrt((2.0 * FRICTION[splitting] - STEP * KNOWN) * STEP) * noise
        return before * half * (before * half * v + STEP * force + noise)
    v = v + 0.5 * STEP * force
    known = (0.5 * STEP * (1.0 + half**2)) ** 2 * KNOWN
    v = before * half**2 * (before * v) + before * np.sqrt(1.0 - half**4 - known) * noise
    return v + 0.5 * STEP * force


def temperature_by_hand(v, force, friction, splitting):
    if splitting == EXACT:
        return v @ (v + 0.5 * STEP * force) / SIZE
    ratio = 1.0 / np.cosh(0.5 * friction * STEP)
    return v @ (v + 0.5 * STEP * ratio * force) / (ratio * SIZE)


IS_HARMONIC = np.arange(SIZE) % 2 == 0

kicks = pytest.mark.parametrize(
    ("splitting", "is_harmonic"),
    [(EXACT, NOT_HARMONIC), (PAPER, NOT_HARMONIC), (EXACT, IS_HARMONIC)],
    ids=["exact", "paper", "split"],
)


def flow(x, v, time, is_harmonic):
    """Exact flow of N(0, 1) in harmonic coordinates, and straight lines in the others."""
    state = (x + 1j * v) * np.exp(-1j * time)
    return np.where(is_harmonic, state.real, x + time * v), np.where(is_harmonic, state.imag, v)


@kicks
def test_sggmc_is_sghmc(state, splitting, is_harmonic):
    harmonic = is_harmonic if is_harmonic.size else np.zeros(SIZE, dtype=bool)
    x, v, stream = state
    expected_x, expected_v, same_stream = x.copy(), v.copy(), stream.copy()
    expected_temperatures = []
    for _ in range(N_STEPS):
        expected_x, expected_v = flow(expected_x, expected_v, 0.5 * STEP, harmonic)
        force = gradient(expected_x) + harmonic * expected_x
        expected_temperatures.append(
            temperature_by_hand(expected_v, force, FRICTION[splitting][0], splitting)
        )
        expected_v = friction_and_noise(expected_v, force, 0.0, splitting, normals(same_stream))
        expected_x, expected_v = flow(expected_x, expected_v, 0.5 * STEP, harmonic)

    temperatures = np.empty(1)
    clips = sggmc(
        called(native_function(compiled_density, SIZE)), np.zeros(N_STEPS, dtype=np.int64),
        FLAT.space, State(x, v), STEP, is_harmonic,
        friction_of(SIZE, FRICTION[splitting], KNOWN, splitting), stream,
        Scratch(np.empty(SIZE), np.empty(SIZE)), temperatures,
    )  # fmt: skip
    np.testing.assert_allclose(x, expected_x, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(v, expected_v, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(stream, same_stream)
    assert temperatures[0] == pytest.approx(np.mean(expected_temperatures), rel=1e-12)
    assert clips == 0


@kicks
def test_gsgnht_is_sgnht(state, splitting, is_harmonic):
    """Ding et al. (2014) in the order A B O B A; in the paper's splitting ξ there is C + ξ here."""
    harmonic = is_harmonic if is_harmonic.size else np.zeros(SIZE, dtype=bool)
    x, v, stream = state
    inertia, target = 0.7, 1.3
    expected_x, expected_v, xi, same_stream = x.copy(), v.copy(), 0.4, stream.copy()
    expected_work, expected_temperatures = np.zeros(2), []

    for _ in range(N_STEPS):
        expected_x, expected_v = flow(expected_x, expected_v, 0.5 * STEP, harmonic)
        force = gradient(expected_x) + harmonic * expected_x
        expected_work += [expected_v @ expected_v, expected_v @ force]
        xi += 0.5 * STEP * (expected_v @ expected_v / SIZE - target) / inertia
        expected_temperatures.append(
            temperature_by_hand(expected_v, force, FRICTION[splitting][0] + xi, splitting)
        )
        expected_v = friction_and_noise(expected_v, force, xi, splitting, normals(same_stream))
        xi += 0.5 * STEP * (expected_v @ expected_v / SIZE - target) / inertia
        expected_x, expected_v = flow(expected_x, expected_v, 0.5 * STEP, harmonic)

    thermostat, sums, temperatures = np.array([0.4]), np.zeros((1, 2)), np.empty(1)
    angle = (FRICTION[splitting][0] + thermostat[0]) * STEP
    held = target if splitting == EXACT else target * np.cosh(0.5 * angle)
    gsgnht(
        called(native_function(compiled_density, SIZE)), np.zeros(N_STEPS, dtype=np.int64),
        FLAT.space, State(x, v), Thermostat(thermostat, np.array([inertia]), np.array([held])),
        sums, STEP, is_harmonic, friction_of(SIZE, FRICTION[splitting], KNOWN, splitting), stream,
        Scratch(np.empty(SIZE), np.empty(SIZE)), temperatures,
    )  # fmt: skip
    np.testing.assert_allclose(x, expected_x, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(v, expected_v, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(stream, same_stream)
    assert thermostat[0] == pytest.approx(xi, rel=1e-12)
    assert temperatures[0] == pytest.approx(np.mean(expected_temperatures), rel=1e-12)
    square, power = expected_work
    np.testing.assert_allclose(sums[0], [square, -2.0 / STEP * power], rtol=1e-12)


def test_curvature_raises_the_target_of_gsgnht(state):
    """T/(1 − ε²λ/4) without friction and noise, and sums of v·v and λv·v that fade."""
    x, v, stream = state
    inertia, curvature, temperature = 0.7, 5.0, 1.3
    xi, sums = np.zeros(1), np.array([[2.0, 2.0 * curvature]])
    target = temperature / (1.0 - 0.25 * STEP**2 * curvature)
    middle = x + 0.5 * STEP * v
    square, power = v @ v, v @ gradient(middle)
    expected = 0.5 * STEP * (square / SIZE - target)
    # the thermostat of the first half brakes the kick
    drag = np.exp(-expected / inertia * STEP)
    kicked = drag * (v + 0.5 * STEP * gradient(middle)) + 0.5 * STEP * gradient(middle)
    expected += 0.5 * STEP * (kicked @ kicked / SIZE - target)
    gsgnht(
        called(native_function(compiled_density, SIZE)), np.zeros(1, dtype=np.int64), FLAT.space,
        State(x, v), Thermostat(xi, np.array([inertia]), np.array([temperature])), sums, STEP,
        NOT_HARMONIC, friction_of(SIZE, 0.0, 0.0), stream,
        Scratch(np.empty(SIZE), np.empty(SIZE)), np.empty(1),
    )  # fmt: skip
    assert xi[0] == pytest.approx(expected / inertia, rel=1e-12)
    found = CURVATURE_MEMORY * np.array([2.0, 2.0 * curvature]) + [square, -2.0 / STEP * power]
    np.testing.assert_allclose(sums[0], found, rtol=1e-12)


def trajectory(x, v, length, is_harmonic, nodes, weights):
    """Kicks at the nodes of a quadrature, and exact flows between them."""
    times = length * np.diff(nodes)
    for k, weight in enumerate(weights):
        residual = gradient(x) + is_harmonic * x
        v = v + length * weight * residual
        if k < len(times):
            x, v = flow(x, v, times[k], is_harmonic)
    return x, v


TRAPEZOIDAL = [0.0, 1.0], [0.5, 0.5]
INNER = 0.5 / 5**0.5
LOBATTO = [0.0, 0.5 - INNER, 0.5 + INNER, 1.0], [1 / 12, 5 / 12, 5 / 12, 1 / 12]


@pytest.mark.parametrize(
    ("is_harmonic", "stages", "rule"),
    [
        (np.zeros(0, dtype=bool), 1, TRAPEZOIDAL),
        (np.ones(SIZE, dtype=bool), 1, TRAPEZOIDAL),
        (np.ones(SIZE, dtype=bool), 3, LOBATTO),
        (IS_HARMONIC, 3, LOBATTO),
    ],
    ids=["leapfrog", "split", "quadrature", "exceptions"],
)
def test_gmc_is_hmc(state, is_harmonic, stages, rule):
    x, _, stream = state
    transitions, n_steps, jitter, step_size = 40, 6, 0.2, 0.6
    expected, same_stream = x.copy(), stream.copy()
    trace, probabilities = [], []
    for _ in range(transitions):
        epsilon = step_size * (1.0 + jitter * (2.0 * uniform(same_stream) - 1.0))
        v = normals(same_stream)
        proposal = expected.copy()
        energy = 0.5 * v @ v - log_density(expected)
        harmonic = is_harmonic if is_harmonic.size else np.zeros(SIZE, dtype=bool)
        for _ in range(n_steps // stages):
            proposal, v = trajectory(proposal, v, stages * epsilon, harmonic, *rule)
        log_ratio = energy - 0.5 * v @ v + log_density(proposal)
        probabilities.append(min(1.0, np.exp(log_ratio)))
        if log_ratio >= 0.0 or np.log(uniform(same_stream)) < log_ratio:
            expected = proposal
        trace.append(expected)

    logp_grad = native_function(compiled_density, SIZE, SIZE + 1)
    kept, acceptance = np.empty((transitions, SIZE)), np.empty(1)
    divergences, evaluations = gmc(
        called(logp_grad), 0, FLAT.space, Chains(1, x, unknown()),
        Leapfrog(step_size, n_steps, jitter, is_harmonic, stages), stream,
        Record(0, kept, acceptance, NO_ENERGIES),
    )  # fmt: skip
    assert 2 < len(np.unique(np.array(trace), axis=0)) < transitions
    np.testing.assert_allclose(kept, trace, rtol=1e-12, atol=1e-12)
    assert acceptance[0] == pytest.approx(np.mean(probabilities), rel=1e-12)
    assert (divergences, evaluations) == (0, 1 + transitions * n_steps)


def test_error_of_a_small_residual_is_that_of_the_quadrature(state):
    """Of the order τ⁶ with three stages, until it is that of the square of the residual."""
    _, _, stream = state

    def mean_error(stages, n_steps):
        record = Record(0, np.empty((200, SIZE)), np.empty(1), NO_ENERGIES)
        gmc(
            called(native_function(nearly_normal, SIZE, SIZE + 1)), 0, FLAT.space,
            Chains(1, np.zeros(SIZE), unknown()),
            Leapfrog(1.5 / n_steps, n_steps, 0.0, np.ones(SIZE, dtype=bool), stages),
            stream.copy(), record,
        )  # fmt: skip
        return 1.0 - record.acceptance[0]

    assert mean_error(3, 3) < 0.1 * mean_error(1, 3)
    assert mean_error(3, 3) < mean_error(1, 9)


def test_gmc_discards_burn_in_draws(state):
    x, _, stream = state
    logp_grad = native_function(compiled_density, SIZE, SIZE + 1)
    arguments = called(logp_grad), 0, FLAT.space
    leapfrog = Leapfrog(0.5, 3, 0.0)
    all_kept, some_kept = np.empty((7, SIZE)), np.empty((4, SIZE))
    rest = np.empty(1), NO_ENERGIES
    for discarded, rows in ((0, all_kept), (3, some_kept)):
        chains, record = Chains(1, x.copy(), unknown()), Record(discarded, rows, *rest)
        gmc(*arguments, chains, leapfrog, stream.copy(), record)
    np.testing.assert_array_equal(some_kept, all_kept[3:])


def test_gmc_resumes_from_its_last_energy(state):
    x, _, stream = state
    logp_grad = native_function(compiled_density, SIZE, SIZE + 1)
    arguments = called(logp_grad), 0, FLAT.space
    leapfrog = Leapfrog(0.5, 3, 0.2)
    rest = np.empty(1), NO_ENERGIES
    whole, parts = np.empty((6, SIZE)), np.empty((6, SIZE))
    chains = Chains(1, x.copy(), unknown())
    gmc(*arguments, chains, leapfrog, stream.copy(), Record(0, whole, *rest))
    current, counts = unknown(), []
    for part in (parts[:2], parts[2:4], parts[4:]):
        chains = Chains(1, x, current)
        _, n = gmc(*arguments, chains, leapfrog, stream, Record(0, part, *rest))
        counts.append(n)
    np.testing.assert_array_equal(parts, whole)
    assert counts == [7, 6, 6]


def test_gmc_counts_divergences_and_stays(state):
    x, _, stream = state
    logp_grad = native_function(compiled_density, SIZE, SIZE + 1)
    before, acceptance = x.copy(), np.empty(1)
    divergences, _ = gmc(
        called(logp_grad), 0, FLAT.space, Chains(1, x, unknown()), Leapfrog(1e4, 3, 0.0), stream,
        Record(5, np.empty((0, SIZE)), acceptance, NO_ENERGIES),
    )  # fmt: skip
    assert divergences == 5
    assert acceptance[0] == 0.0
    np.testing.assert_array_equal(x, before)
