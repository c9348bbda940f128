"""SGGMC and gSGNHT with friction, known gradient noise and scales by coordinate."""

import math

import numpy as np
import pytest
from numba import njit
from scipy.linalg import solve_discrete_lyapunov

from pymc_geodesic.integrators import NOT_HARMONIC, Scratch, State
from pymc_geodesic.kernels import gsgnht, sggmc
from pymc_geodesic.manifolds import Euclidean, Product
from pymc_geodesic.runtime.streams import fill_normal, new_stream
from tests.grids import by_default, cross
from tests.kernels.drivers import (
    Ends,
    called,
    compile_logp_grad,
    friction_of,
    run_langevin,
    scaled_noisy_logp_grad,
    thermostat_errors,
)
from tests.mutants import BIASED_BY_COORDINATE
from tests.targets import (
    CONCENTRATION_AND_DIRECTION,
    DIRICHLET_ON_SPHERE,
    LAPLACE,
    LIMIT,
    MATRIX_VON_MISES_FISHER,
    TRUNCATED_NORMAL,
    Target,
)

N_CHAINS = 20_000
INERTIA = 8.0
STEP = 0.05

# scales of the blocks; friction, and known noise as a part of what friction takes away in a step,
# of each coordinate
CASES = {
    LAPLACE: ([1.0], [1.0, 3.0], [0.2, 0.7]),
    CONCENTRATION_AND_DIRECTION: ([1.0, 0.6], [1.0, 3.0, 3.0, 3.0], [0.2, 0.7, 0.7, 0.7]),
    MATRIX_VON_MISES_FISHER: ([0.7], [1.5] * 6, [0.6] * 6),
    DIRICHLET_ON_SPHERE: ([0.5], [2.0] * 3, [0.6] * 3),
    TRUNCATED_NORMAL: ([0.8], [1.5] * 2, [0.6] * 2),
}

SOME = [
    str(each) for each in (CONCENTRATION_AND_DIRECTION, MATRIX_VON_MISES_FISHER, TRUNCATED_NORMAL)
]
"""Targets that run by default: mixed, curved and bounded."""


def noise_of_part(step_size: float, friction: np.ndarray, part: np.ndarray) -> np.ndarray:
    """Variance V with (ε/2)² (1 + e)² V = part · (1 − e²), e = exp(−Cε)."""
    decay = np.exp(-friction * step_size)
    return part * (1.0 - decay**2) / (0.5 * step_size * (1.0 + decay)) ** 2


class Case:
    """A target with scales, frictions and gradient noise."""

    def __init__(self, target: Target) -> None:
        scales, friction, part = (np.array(values) for values in CASES[target])
        self.target, self.scales, self.friction = target, scales, friction
        self.step_size = min(STEP, target.step_size / scales.min())
        self.noise = noise_of_part(self.step_size, friction, part)
        self.logp_grad = scaled_noisy_logp_grad(target, scales, self.noise)

    def run(self, kernel, compiled=None) -> Ends:
        stream = new_stream(np.random.default_rng(7))
        return run_langevin(
            self.target, self.logp_grad, N_CHAINS, inertia=INERTIA if kernel is gsgnht else None,
            friction=self.friction, known_noise=self.noise, scales=self.scales,
            step_size=self.step_size, context=np.array([stream.ctypes.data]), kernel=compiled,
        )  # fmt: skip

    def temperature_errors(self, ends: Ends) -> float:
        """Largest deviation of the temperature of a block from 1, in standard errors."""
        found = ends.temperatures
        errors = found.std(axis=0) / math.sqrt(N_CHAINS)
        return float(np.abs((found.mean(axis=0) - 1.0) / errors).max())

    def worst(self, ends: Ends) -> float:
        """Largest deviation of positions, velocities, thermostats and temperatures."""
        of_thermostats = (
            thermostat_errors(ends, self.target, INERTIA) if ends.thermostats.any() else 0.0
        )
        of_states = self.target.worst(ends.x, ends.v)
        worst = max(of_states, of_thermostats, self.temperature_errors(ends))
        return worst if np.isfinite([ends.thermostats, ends.temperatures]).all() else math.inf


@pytest.fixture(scope="module", params=by_default(SOME, of=CASES), ids=str)
def case(request):
    return Case(request.param)


@pytest.fixture(scope="module")
def mixed():
    return Case(CONCENTRATION_AND_DIRECTION)


@pytest.mark.parametrize("kernel", [sggmc, gsgnht], ids=lambda kernel: kernel.__name__)
def test_exact_draws_stay_exact(kernel, case):
    ends = case.run(kernel)
    product = case.target.product
    assert product.contains(product.from_coordinates(ends.x), 1e-12).all()
    assert ends.thermostats.any() == (kernel is gsgnht)
    assert case.worst(ends) < LIMIT, case.target.deviations(ends.x, ends.v)


FAULTS = ["sggmc: known noise left in", "gsgnht: sign of the thermostat"]
"""One of each kernel; the others are slow."""


@pytest.mark.slow
@pytest.mark.parametrize("mutant", by_default(FAULTS, of=BIASED_BY_COORDINATE), ids=str)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_biased_kernels_are_rejected(mutant, mixed):
    """Chains of some mutants diverge, until the gradient function overflows."""
    with np.errstate(all="ignore"):
        assert mixed.worst(mixed.run(mutant.kernel, mutant.compile())) > LIMIT


PRECISION = np.array([1.0, 4.0, 0.3])


def _normal(x, gradient):
    total = 0.0
    for i in range(3):
        gradient[i] = -PRECISION[i] * x[i]
        total -= 0.5 * PRECISION[i] * x[i] * x[i]
    return total


@pytest.mark.parametrize("is_split", [False, True], ids=["leapfrog", "split"])
@pytest.mark.parametrize(("h", "part"), cross([0.5, 0.1], [0.6, 0.0]))
def test_normal_distribution_is_exact_at_any_step(h, part, is_split):
    """The stationary covariance by Lyapunov's equation, map and noise measured on the kernel."""
    target = Target("normal", Product([("x", Euclidean(3), 1)]), njit(_normal), None, None)
    is_harmonic = PRECISION == 1.0 if is_split else NOT_HARMONIC
    friction = np.array([1.0, 2.0, 5.0])
    noise = noise_of_part(h, friction, np.full(3, part))
    logp_grad = compile_logp_grad(target)

    def after(state, noise):
        x, v = state[:3].copy(), state[3:].copy()
        temperatures = np.empty(1)
        sggmc(
            called(logp_grad), np.zeros(1, dtype=np.int64), target.product.space, State(x, v), h,
            is_harmonic, friction_of(3, friction, noise), new_stream(np.random.default_rng(5)),
            Scratch(np.empty(3), np.empty(3)), temperatures,
        )  # fmt: skip
        return np.concatenate([x, v]), temperatures[0]

    silent = np.full(3, 1e300)
    moves = np.array([after(e, silent)[0] for e in np.eye(6)]).T
    normal = np.empty(3)
    fill_normal(new_stream(np.random.default_rng(5)), normal)
    injected = after(np.zeros(6), noise)[0]
    # the noise of a coordinate enters its position and velocity
    gain = np.zeros((6, 3))
    for j in range(3):
        gain[[j, 3 + j], j] = injected[[j, 3 + j]] / normal[j]
    kick = 0.5 * h * (1.0 + np.exp(-friction * h))
    of_gradient = np.zeros((6, 3))
    line, circle = np.array([0.5 * h, 1.0]), np.array([np.sin(0.5 * h), np.cos(0.5 * h)])
    for j in range(3):  # effect of `kick` on position and velocity
        is_on_circle = is_split and is_harmonic[j]
        of_gradient[[j, 3 + j], j] = kick[j] * (circle if is_on_circle else line)
    noise_covariance = gain @ gain.T + of_gradient @ (noise[:, np.newaxis] * of_gradient.T)
    covariance = solve_discrete_lyapunov(moves, noise_covariance)
    np.testing.assert_allclose(np.diag(covariance)[:3], 1.0 / PRECISION, rtol=1e-10)
    basis = np.eye(6)
    form = np.empty((6, 6))
    for i in range(6):
        for j in range(6):
            up, down = (after(basis[i] + s * basis[j], silent)[1] for s in (1.0, -1.0))
            form[i, j] = (up - down) / 4.0
    # the temperature that is returned is that of the positions
    assert np.trace(form @ covariance) == pytest.approx(1.0, abs=1e-10)
