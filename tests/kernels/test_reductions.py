"""On flat space the kernels are the methods they generalise, written out in NumPy."""

import numpy as np
import pytest

from pymc_geodesic.integrators import EXACT, PAPER, Scratch, State, Thermostat
from pymc_geodesic.kernels import gmc, gsgnht, sggmc
from pymc_geodesic.kernels.gmc import Chains, Leapfrog, Record
from pymc_geodesic.kernels.sggmc import HeatBath
from pymc_geodesic.manifolds import Euclidean, Product
from pymc_geodesic.runtime.fields import native_field
from pymc_geodesic.runtime.streams import fill_normal, new_stream, uniform
from tests.kernels.drivers import called
from tests.machine_code import kept

SIZE = 5
FLAT = Product([("x", Euclidean(SIZE), 1)])
STEP = 0.15
N_STEPS = 25
NO_ENERGIES = np.empty((2, 0))


def unknown():
    """Nothing is known of where a chain begins."""
    return np.full(SIZE + 1, np.nan)


def gradient(x):
    """∇ of −Σ (xᵢ²/2 + i sin xᵢ)."""
    return -x - np.arange(SIZE) * np.cos(x)


def log_density(x):
    return -np.sum(0.5 * x**2 + np.arange(SIZE) * np.sin(x))


@kept
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


def friction_and_noise(v, force, friction, diffusion, splitting, noise):
    """One kick of SGHMC: by halves of friction, or by halves of the gradient."""
    if splitting == PAPER:
        half = np.exp(-0.5 * friction * STEP)
        return half * (half * v + STEP * force + np.sqrt(2.0 * diffusion * STEP) * noise)
    v = v + 0.5 * STEP * force
    spread = np.sqrt(diffusion / friction * (1.0 - np.exp(-2.0 * friction * STEP)))
    return np.exp(-friction * STEP) * v + spread * noise + 0.5 * STEP * force


@pytest.mark.parametrize("splitting", [EXACT, PAPER])
def test_sggmc_is_sghmc(state, splitting):
    x, v, stream = state
    expected_x, expected_v, same_stream = x.copy(), v.copy(), stream.copy()
    temperatures = []
    half = 0.5 * STEP / (np.cosh(0.6 * STEP) if splitting == PAPER else 1.0)
    for _ in range(N_STEPS):
        expected_x += 0.5 * STEP * expected_v
        force = gradient(expected_x)
        temperatures.append(expected_v @ (expected_v + half * force) / SIZE)
        expected_v = friction_and_noise(
            expected_v, force, 1.2, 1.2, splitting, normals(same_stream)
        )
        expected_x += 0.5 * STEP * expected_v

    field = native_field(compiled_density, SIZE)
    temperature, clips = sggmc(
        called(field), np.zeros(N_STEPS, dtype=np.int64), FLAT.space, State(x, v), STEP,
        HeatBath(np.array([1.2]), np.empty(0), splitting), stream,
        Scratch(np.empty(SIZE), np.empty(SIZE)),
    )  # fmt: skip
    np.testing.assert_allclose(x, expected_x, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(v, expected_v, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(stream, same_stream)
    assert temperature == pytest.approx(np.mean(temperatures), rel=1e-12)
    assert clips == 0


def test_gsgnht_is_sgnht(state):
    """Inertia 1 and the splitting of the paper: Ding et al. (2014), with the ABOBA scheme."""
    x, v, stream = state
    diffusion, temperature = 0.9, 1.3
    expected_x, expected_v, xi, same_stream = x.copy(), v.copy(), 0.4, stream.copy()
    expected_work = np.zeros(2)
    for _ in range(N_STEPS):
        expected_x += 0.5 * STEP * expected_v
        expected_work += [expected_v @ expected_v, expected_v @ gradient(expected_x)]
        xi += 0.5 * STEP * (expected_v @ expected_v / SIZE - temperature)
        expected_v = friction_and_noise(
            expected_v, gradient(expected_x), xi, diffusion, PAPER, normals(same_stream)
        )
        xi += 0.5 * STEP * (expected_v @ expected_v / SIZE - temperature)
        expected_x += 0.5 * STEP * expected_v

    field = native_field(compiled_density, SIZE)
    thermostat, work = np.array([0.4]), np.empty((1, 2))
    gsgnht(
        called(field), np.zeros(N_STEPS, dtype=np.int64), FLAT.space, State(x, v),
        Thermostat(thermostat, np.ones(1), np.array([temperature])), STEP,
        HeatBath(np.array([diffusion]), np.empty(0), PAPER), stream,
        Scratch(np.empty(SIZE), np.empty(SIZE)), work,
    )  # fmt: skip
    np.testing.assert_allclose(x, expected_x, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(v, expected_v, rtol=1e-12, atol=1e-12)
    assert thermostat[0] == pytest.approx(xi, rel=1e-12)
    np.testing.assert_allclose(work[0], expected_work, rtol=1e-12)


def test_gmc_is_hmc(state):
    x, _, stream = state
    transitions, n_steps, jitter, step_size = 12, 6, 0.2, 0.5
    expected, same_stream = x.copy(), stream.copy()
    trace, probabilities = [], []
    for _ in range(transitions):
        epsilon = step_size * (1.0 + jitter * (2.0 * uniform(same_stream) - 1.0))
        v = normals(same_stream)
        proposal = expected.copy()
        energy = 0.5 * v @ v - log_density(expected)
        for _ in range(n_steps):
            v = v + 0.5 * epsilon * gradient(proposal)
            proposal = proposal + epsilon * v
            v = v + 0.5 * epsilon * gradient(proposal)
        log_ratio = energy - 0.5 * v @ v + log_density(proposal)
        probabilities.append(min(1.0, np.exp(log_ratio)))
        if log_ratio >= 0.0 or np.log(uniform(same_stream)) < log_ratio:
            expected = proposal
        trace.append(expected)

    field = native_field(compiled_density, SIZE, SIZE + 1)
    kept, acceptance = np.empty((transitions, SIZE)), np.empty(1)
    divergences, evaluations = gmc(
        called(field), 0, FLAT.space, Chains(1, x, unknown()), Leapfrog(step_size, n_steps, jitter),
        stream, Record(0, kept, acceptance, NO_ENERGIES),
    )  # fmt: skip
    assert 2 < len(np.unique(np.array(trace), axis=0)) < transitions
    np.testing.assert_allclose(kept, trace, rtol=1e-12, atol=1e-12)
    assert acceptance[0] == pytest.approx(np.mean(probabilities), rel=1e-12)
    assert (divergences, evaluations) == (0, 1 + transitions * n_steps)


def test_gmc_discards_before_it_keeps(state):
    x, _, stream = state
    field = native_field(compiled_density, SIZE, SIZE + 1)
    arguments = called(field), 0, FLAT.space
    leapfrog = Leapfrog(0.5, 3, 0.0)
    all_kept, some_kept = np.empty((7, SIZE)), np.empty((4, SIZE))
    rest = np.empty(1), NO_ENERGIES
    for discarded, rows in ((0, all_kept), (3, some_kept)):
        chains, record = Chains(1, x.copy(), unknown()), Record(discarded, rows, *rest)
        gmc(*arguments, chains, leapfrog, stream.copy(), record)
    np.testing.assert_array_equal(some_kept, all_kept[3:])


def test_gmc_goes_on_with_what_it_knows(state):
    x, _, stream = state
    field = native_field(compiled_density, SIZE, SIZE + 1)
    arguments = called(field), 0, FLAT.space
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
    field = native_field(compiled_density, SIZE, SIZE + 1)
    before, acceptance = x.copy(), np.empty(1)
    divergences, _ = gmc(
        called(field), 0, FLAT.space, Chains(1, x, unknown()), Leapfrog(1e4, 3, 0.0), stream,
        Record(5, np.empty((0, SIZE)), acceptance, NO_ENERGIES),
    )  # fmt: skip
    assert divergences == 5
    assert acceptance[0] == 0.0
    np.testing.assert_array_equal(x, before)
