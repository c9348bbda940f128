"""Langevin dynamics with friction and known gradient noise by direction."""

import math

import numpy as np
import pytest
from scipy.linalg import solve_discrete_lyapunov

from pymc_geodesic.integrators import EXACT, Scratch, State
from pymc_geodesic.kernels import sggmc
from pymc_geodesic.kernels.geodesic_langevin import (
    BathByDirection,
    SharedThermostat,
    friction_coefficients,
    geodesic_langevin,
)
from pymc_geodesic.kernels.sggmc import HeatBath
from pymc_geodesic.manifolds import Euclidean, Product
from pymc_geodesic.runtime.streams import fill_normal, new_stream
from tests.grids import by_default, cross
from tests.kernels.drivers import called, gradient_field, run_langevin, scaled_noisy_field
from tests.machine_code import kept
from tests.mutants import BIASED_BY_DIRECTION, UNPROJECTED_BY_DIRECTION
from tests.targets import (
    CONCENTRATION_AND_DIRECTION,
    DIRICHLET_ON_SPHERE,
    LAPLACE,
    LIMIT,
    MATRIX_VON_MISES_FISHER,
    TRUNCATED_NORMAL,
    VON_MISES_FISHER,
    Target,
)

N_CHAINS = 20_000
STEP = 0.05

# known noise as a part of what friction takes away in a step, and friction, of each number
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
"""By default: mixed, curved and with walls."""


def noise_of_part(step_size: float, friction: np.ndarray, part: np.ndarray) -> np.ndarray:
    """Variance b with h² (1 + e)² b / 4 = part · (1 − e²), e = exp(−γ h)."""
    decay = np.exp(-friction * step_size)
    return part * (1.0 - decay**2) / (0.5 * step_size * (1.0 + decay)) ** 2


class Case:
    """A target with scales, frictions and gradient noise."""

    def __init__(self, target: Target) -> None:
        scales, friction, part = (np.array(values) for values in CASES[target])
        self.target, self.scales, self.friction = target, scales, friction
        self.step_size = min(STEP, target.step_size / scales.min())
        self.noise = noise_of_part(self.step_size, friction, part)
        self.field = scaled_noisy_field(target, scales, self.noise)

    def run(self, *, inertia: float, n: int = N_CHAINS, kernel=geodesic_langevin):
        return run_langevin(
            self.target, self.field, n, scales=self.scales, friction=self.friction,
            known_noise=self.noise, inertia=inertia, step_size=self.step_size, kernel=kernel,
        )  # fmt: skip


@pytest.fixture(scope="module", params=by_default(SOME, of=CASES), ids=str)
def case(request):
    return Case(request.param)


@pytest.fixture(scope="module")
def mixed():
    return Case(CONCENTRATION_AND_DIRECTION)


def thermostat_errors(case: Case, thermostats: np.ndarray, inertia: float) -> float:
    """Largest deviation of mean and variance from N(0, 1/(mQ)), in standard errors."""
    scaled = thermostats * math.sqrt(case.target.product.dim * inertia)
    return max(
        abs(scaled.mean()) * math.sqrt(scaled.size),
        abs(scaled.var() - 1.0) * math.sqrt(scaled.size / 2.0),
    )


def test_exact_draws_stay_exact_draws(case):
    x, v, _, temperatures = case.run(inertia=math.inf)
    assert case.target.product.contains(case.target.product.from_coordinates(x), 1e-12).all()
    assert case.target.worst(x, v) < LIMIT, case.target.deviations(x, v)
    error = temperatures.std() / math.sqrt(N_CHAINS)
    assert abs(temperatures.mean() - 1.0) < LIMIT * error


INERTIA = 8.0


def test_exact_draws_stay_exact_draws_with_a_thermostat(case):
    x, v, thermostats, _ = case.run(inertia=INERTIA)
    assert case.target.worst(x, v) < LIMIT, case.target.deviations(x, v)
    assert thermostat_errors(case, thermostats, INERTIA) < LIMIT


FAULTS = [
    "geodesic_langevin: known noise not taken off",
    "geodesic_langevin: half of the friction",
    "geodesic_langevin: scales ignored",
    "geodesic_langevin: gradient 10 % too small",
    "geodesic_langevin: sign of the thermostat",
]
"""One of each kind; the others are slow."""


@pytest.mark.parametrize("mutant", by_default(FAULTS, of=BIASED_BY_DIRECTION), ids=str)
def test_biased_kernels_are_rejected(mutant, mixed):
    x, v, thermostats, _ = mixed.run(inertia=INERTIA, kernel=mutant.compile())
    errors = mixed.target.worst(x, v), thermostat_errors(mixed, thermostats, INERTIA)
    assert max(errors) > LIMIT


def test_velocities_off_the_tangent_space_are_noticed(mixed):
    with pytest.raises(ArithmeticError, match="not tangent"):
        mixed.run(inertia=INERTIA, n=1, kernel=UNPROJECTED_BY_DIRECTION.compile())


def call(x, v, *, product, field, step_size, friction, noise, thermostat, inertia, stream, n=1):
    """One call of the kernel, in place; returns temperature and clips."""
    return geodesic_langevin(
        called(field), np.zeros(n, dtype=np.int64), product.space, State(x, v), step_size,
        BathByDirection(friction, noise), SharedThermostat(thermostat, inertia), stream,
        np.empty(x.size),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("target", "known"),
    cross([VON_MISES_FISHER, LAPLACE, MATRIX_VON_MISES_FISHER], [5.0, 0.0]),
    ids=str,
)
def test_uniform_friction_is_sggmc(target, known):
    product, field = target.product, gradient_field(target)
    x = target.draw(np.random.default_rng(3), 1)[0]
    v = np.zeros_like(x)
    other_x, other_v = x.copy(), v.copy()
    noise = np.full(x.size, known)
    temperature, clips = call(
        x, v, product=product, field=field, step_size=0.1, friction=np.full(x.size, 1.3),
        noise=noise, thermostat=np.zeros(1), inertia=math.inf, n=7,
        stream=new_stream(np.random.default_rng(2)),
    )  # fmt: skip
    other_temperature, other_clips = sggmc(
        called(field), np.zeros(7, dtype=np.int64), product.space, State(other_x, other_v), 0.1,
        HeatBath(np.array([1.3]), noise, EXACT), new_stream(np.random.default_rng(2)),
        Scratch(np.empty(x.size), np.empty(x.size)),
    )  # fmt: skip
    np.testing.assert_allclose(x, other_x, rtol=0, atol=1e-12)
    np.testing.assert_allclose(v, other_v, rtol=0, atol=1e-12)
    assert temperature == pytest.approx(other_temperature, abs=1e-12)
    assert clips == other_clips == 0
    assert np.linalg.norm(v) > 0.1


PRECISION = np.array([1.0, 4.0, 0.3])


def _normal(x, gradient):
    total = 0.0
    for i in range(3):
        gradient[i] = -PRECISION[i] * x[i]
        total -= 0.5 * PRECISION[i] * x[i] * x[i]
    return total


@pytest.mark.parametrize(("h", "part"), cross([0.5, 0.1], [0.6, 0.0]))
def test_normal_law_is_exact_at_any_step(h, part):
    """A and noise gain are read off the kernel, and the stationary covariance solves Lyapunov."""
    target = Target("normal", Product([("x", Euclidean(3), 1)]), kept(_normal), None, None)
    friction = np.array([1.0, 2.0, 5.0])
    noise = noise_of_part(h, friction, np.full(3, part))
    field = gradient_field(target)

    def after(state, noise):
        x, v = state[:3].copy(), state[3:].copy()
        temperature, _ = call(
            x, v, product=target.product, field=field, step_size=h, friction=friction,
            noise=noise, thermostat=np.zeros(1), inertia=math.inf,
            stream=new_stream(np.random.default_rng(5)),
        )  # fmt: skip
        return np.concatenate([x, v]), temperature

    silent = np.full(3, 1e300)
    moves = np.array([after(e, silent)[0] for e in np.eye(6)]).T
    normal = np.empty(3)
    fill_normal(new_stream(np.random.default_rng(5)), normal)
    injected = after(np.zeros(6), noise)[0]
    # each coordinate by itself: the noise enters its position and velocity
    gain = np.zeros((6, 3))
    for j in range(3):
        gain[[j, 3 + j], j] = injected[[j, 3 + j]] / normal[j]
    push = 0.5 * h * (1.0 + np.exp(-friction * h))
    of_gradient = np.zeros((6, 3))
    for j in range(3):  # what a kick of size `push` does to position and velocity
        of_gradient[[j, 3 + j], j] = push[j] * np.array([0.5 * h, 1.0])
    spread = gain @ gain.T + of_gradient @ (noise[:, np.newaxis] * of_gradient.T)
    covariance = solve_discrete_lyapunov(moves, spread)
    np.testing.assert_allclose(np.diag(covariance)[:3], 1.0 / PRECISION, rtol=1e-10)
    basis = np.eye(6)
    form = np.empty((6, 6))
    for i in range(6):
        for j in range(6):
            up, down = (after(basis[i] + s * basis[j], silent)[1] for s in (1.0, -1.0))
            form[i, j] = (up - down) / 4.0
    # the temperature that is returned is that of the positions
    assert np.trace(form @ covariance) == pytest.approx(1.0, abs=1e-10)


def test_coefficients_take_known_noise_off_once():
    h, friction, noise = 0.3, np.array([0.5, 2.0, 2.0]), np.array([0.0, 1.5, 60.0])
    decay, spread = np.empty(3), np.empty(3)
    clips = friction_coefficients(h, friction, noise, decay, spread)
    expected = np.exp(-friction * h)
    np.testing.assert_allclose(decay, expected, rtol=1e-14)
    left = 1.0 - expected**2 - (0.5 * h * (1.0 + expected)) ** 2 * noise
    assert left[2] < 0.0 < left[1]
    np.testing.assert_allclose(spread**2, np.maximum(left, 0.0), atol=1e-14)
    assert clips == 1


def test_thermostat_is_bounded_below_by_the_weakest_friction():
    target = VON_MISES_FISHER
    x = target.draw(np.random.default_rng(3), 1)[0]
    thermostat = np.zeros(1)
    call(
        x, np.zeros(3), product=target.product, field=gradient_field(target), step_size=0.1,
        friction=np.array([3.0, 2.0, 3.0]), noise=np.zeros(3), thermostat=thermostat,
        inertia=1e-3, stream=new_stream(np.random.default_rng(2)),
    )  # fmt: skip
    assert thermostat[0] == -1.0
