"""SSGNHT: recursion, order, moments in closed form, and mutants."""

import math
from itertools import pairwise

import numpy as np
import pytest
from numba import njit

from pymc_geodesic.integrators import Scratch, State, Thermostat
from pymc_geodesic.kernels import ssgnht
from pymc_geodesic.manifolds import Euclidean, Product
from pymc_geodesic.runtime.streams import fill_normal, new_stream, split_stream
from tests.grids import by_default
from tests.kernels.drivers import called, compile_logp_grad, run_ssgnht
from tests.mutants import BIASED_EULER, FREE_THERMOSTAT, OTHER_RECURSIONS
from tests.native_functions import native_function
from tests.targets import LAPLACE, LIMIT, LOG_GAMMA

N_CHAINS = 20_000
SHORT = {"step_size": 0.01, "n_steps": 200}
BLOCKS = Product([("a", Euclidean(3), 1), ("b", Euclidean(2), 1)])
PARTS = list(BLOCKS.slices.values())
SIZE = BLOCKS.size


@njit
def rugged(position, argument, context, output):
    """∇ of −Σ (xᵢ²/2 + i sin xᵢ), times 1 + argument."""
    for i in range(position.size):
        output[i] = -(1.0 + argument) * (position[i] + i * np.cos(position[i]))
    return 0.0


def run(
    logp_grad, product, state, inertia, step_size, diffusion, arguments, stream, kernel=ssgnht,
    targets=None,
):  # fmt: skip
    targets = np.ones_like(inertia) if targets is None else targets
    return kernel(
        called(logp_grad), arguments, product.space, State(*state[:2]),
        Thermostat(state[2], inertia, targets), step_size, diffusion, stream,
        Scratch(np.empty(product.size), np.empty(product.size)),
    )  # fmt: skip


def initial_state():
    return np.linspace(-2.0, 2.0, SIZE), np.linspace(1.0, -1.5, SIZE), np.array([0.7, 1.3])


INERTIA, DIFFUSION, TARGETS = np.array([1.0, 0.5]), np.array([0.9, 0.4]), np.array([1.0, 1.7])


def recursion_by_hand(step_size, arguments, stream):
    """Eq. 30 in NumPy, with a thermostat for each variable."""
    x, v, xi = initial_state()
    temperatures = []
    for argument in arguments:
        gradient = -(1.0 + argument) * (x + np.arange(SIZE) * np.cos(x))
        old, v, old_xi = v, v.copy(), xi.copy()
        noise = np.empty(SIZE)
        fill_normal(stream, noise)
        for b, part in enumerate(PARTS):
            v[part] = (
                old[part]
                - old_xi[b] * old[part] * step_size
                + step_size * gradient[part]
                + np.sqrt(2.0 * DIFFUSION[b] * step_size) * noise[part]
            )
            xi[b] += step_size / INERTIA[b] * (np.mean(old[part] ** 2) - TARGETS[b])
            temperatures.append(np.mean(v[part] ** 2))
        x = x + step_size * v
    return np.concatenate([x, v, xi, [np.mean(temperatures)]])


def recursion_of(kernel, step_size, arguments, stream):
    state = initial_state()
    logp_grad = native_function(rugged, SIZE)
    temperature = run(
        logp_grad, BLOCKS, state, INERTIA, step_size, DIFFUSION, arguments, stream, kernel, TARGETS
    )
    return np.concatenate([*state, [temperature]])


def recursion_error(kernel):
    arguments = np.random.default_rng(1).integers(3, size=40)
    expected, found = (
        step(0.1, arguments, new_stream(np.random.default_rng(2)))
        for step in (recursion_by_hand, lambda *rest: recursion_of(kernel, *rest))
    )
    return np.abs(found / expected - 1.0).max()


def test_recursion_by_hand():
    assert recursion_error(ssgnht) < 1e-11


@pytest.mark.parametrize("mutant", OTHER_RECURSIONS, ids=str)
def test_other_recursions_are_rejected(mutant):
    assert recursion_error(mutant.compile()) > 1e-3


def test_first_order():
    """Without noise the kernel is Euler's method."""
    ends = []
    for n in (100, 200, 400):
        state, stream = initial_state(), new_stream(np.random.default_rng(2))
        arguments = np.zeros(n, dtype=np.int64)
        run(
            native_function(rugged, SIZE), BLOCKS, state, INERTIA, 1.0 / n, np.zeros(2), arguments,
            stream,
        )  # fmt: skip
        ends.append(np.concatenate(state))
    coarse, fine = (np.linalg.norm(a - b) for a, b in pairwise(ends))
    assert np.log2(coarse / fine) == pytest.approx(1.0, abs=0.1)


CURVATURES = np.array([0.5, 2.0, 8.0])
KICK = 2.0


@njit
def noisy_normal(position, argument, context, output):
    """Gradient of a normal distribution plus a kick whose sign is the argument."""
    for i in range(position.size):
        output[i] = -CURVATURES[i % 3] * position[i] + KICK * argument
    return 0.0


def test_moments_of_a_normal_distribution():
    """Temperature (A + hV/2)/ξ / (1 − ξh/2 − h²λ/4) at constant ξ; positions have 1 − ξh/2 of it.

    The velocity is half a step behind, so that it is correlated with the position, ⟨xv⟩ = hT/2.
    """
    step_size, friction, diffusion, n_steps = 0.3, 1.2, 1.0, 120
    product = Product([(f"x{i}", Euclidean(1), 1) for i in range(3)])
    rng = np.random.default_rng(3)
    noise = (diffusion + 0.5 * step_size * KICK**2) / friction
    narrowing = 1.0 - 0.5 * friction * step_size
    temperature = noise / (narrowing - 0.25 * step_size**2 * CURVATURES)
    x = rng.standard_normal((N_CHAINS, 3)) * np.sqrt(narrowing * temperature / CURVATURES)
    v = rng.standard_normal((N_CHAINS, 3)) * np.sqrt(temperature)
    streams = split_stream(new_stream(rng), N_CHAINS)
    signs = rng.choice([-1, 1], size=(N_CHAINS, n_steps))
    logp_grad = native_function(noisy_normal, 3)
    for chain in range(N_CHAINS):
        state = x[chain], v[chain], np.full(3, friction)
        run(
            logp_grad, product, state, np.full(3, 1e300), step_size, np.full(3, diffusion),
            signs[chain], streams[chain],
        )  # fmt: skip
    error = math.sqrt(2.0 / N_CHAINS)
    assert np.abs((v**2).mean(axis=0) / temperature - 1.0).max() < LIMIT * error
    positions = (x**2).mean(axis=0) * CURVATURES / (narrowing * temperature)
    assert np.abs(positions - 1.0).max() < LIMIT * error
    product_of_both = x * v
    deviation = product_of_both.mean(axis=0) - 0.5 * step_size * temperature
    assert (np.abs(deviation) < LIMIT * product_of_both.std(axis=0) / math.sqrt(N_CHAINS)).all()


def test_thermostat_compensates_gradient_noise():
    """Temperature 1 with any noise: ξ increases from A until it compensates the noise."""
    size, step_size, diffusion = 300, 0.1, 1.0
    product = Product([("x", Euclidean(size), 1)])
    rng = np.random.default_rng(5)
    state = np.zeros(size), rng.standard_normal(size), np.array([diffusion])
    logp_grad, stream = native_function(noisy_normal, size), new_stream(rng)
    inertia, diffusions = np.ones(1), np.array([diffusion])

    def go(n):
        signs = rng.choice([-1, 1], size=n)
        return run(logp_grad, product, state, inertia, step_size, diffusions, signs, stream)

    go(2000)
    temperatures, frictions = [], []
    for _ in range(2000):
        temperatures.append(go(10))
        frictions.append(state[2][0])
    assert np.mean(temperatures) == pytest.approx(1.0, abs=0.01)
    expected = diffusion + 0.5 * step_size * KICK**2
    factor = 1.0 - 0.5 * expected * step_size - 0.25 * step_size**2 * CURVATURES.mean()
    assert np.mean(frictions) == pytest.approx(expected / factor, rel=0.03)


def run_beyond_critical_noise(kernel):
    """Temperatures and thermostat with noise of variance s² > 1 at every step."""
    size, step_size, diffusion, strength = 300, 0.1, 1.0, 10
    product = Product([("x", Euclidean(size), 1)])
    rng = np.random.default_rng(6)
    state = np.zeros(size), rng.standard_normal(size), np.array([diffusion])
    logp_grad, stream = native_function(noisy_normal, size), new_stream(rng)
    temperatures = [
        run(
            logp_grad, product, state, np.ones(1), step_size, np.array([diffusion]),
            strength * rng.choice([-1, 1], size=20), stream, kernel,
        )
        for _ in range(1000)
    ]  # fmt: skip
    least = 2.0 * diffusion * step_size + (step_size * KICK * strength) ** 2
    return np.array(temperatures), state[2][0] * step_size, least


def test_thermostat_is_bounded_at_the_maximum_friction():
    """At ξh = 1 a velocity is the last increment, and x an AR(1) process with 1 − h²λ."""
    temperatures, decay, least = run_beyond_critical_noise(ssgnht)
    assert decay == 1.0
    pull = 0.1**2 * CURVATURES
    expected = least * np.mean(1.0 + pull / (2.0 - pull))
    assert temperatures[100:].mean() == pytest.approx(expected, rel=0.02)


def test_free_thermostat_diverges():
    with np.errstate(all="ignore"):
        temperatures, _, _ = run_beyond_critical_noise(FREE_THERMOSTAT.compile())
    assert not np.isfinite(temperatures[-1])


@pytest.fixture(scope="module", params=[LOG_GAMMA, LAPLACE], ids=str)
def target(request):
    return request.param


@pytest.fixture(scope="module")
def logp_grad(target):
    return compile_logp_grad(target)


def worst(target, logp_grad, kernel=ssgnht):
    x, v, thermostat = run_ssgnht(target, logp_grad, N_CHAINS, kernel=kernel, **SHORT)
    deviation = (thermostat - 1.5) * np.sqrt(2.0 * target.product.dims)
    of_thermostat = np.abs(deviation.mean(axis=0)).max() * math.sqrt(N_CHAINS)
    return max(target.worst(x, v), of_thermostat)


def test_exact_draws_stay_exact(target, logp_grad):
    assert worst(target, logp_grad) < LIMIT


FAULTS = [
    "ssgnht: noise 10 % too small",
    "ssgnht: gradient 10 % too small",
    "ssgnht: wrong thermometer",
]


@pytest.mark.parametrize("mutant", by_default(FAULTS, of=BIASED_EULER), ids=str)
def test_broken_kernels_are_rejected(mutant):
    assert worst(LAPLACE, compile_logp_grad(LAPLACE), mutant.compile()) > LIMIT
