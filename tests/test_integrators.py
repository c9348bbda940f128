"""Closed forms of kicks with friction, reversibility and order of the geodesic leapfrog."""

import math
from itertools import pairwise

import numpy as np
import pytest
from numba import njit
from scipy.linalg import solve_discrete_lyapunov

from pymc_geodesic.integrators import (
    EXACT,
    NOT_HARMONIC,
    PAPER,
    State,
    cancel_harmonic_force,
    drift,
    friction_coefficients,
    kick,
    kick_with_friction,
    kinetic_temperature,
    position_temperature,
    refresh_velocity,
)
from pymc_geodesic.manifolds import Euclidean, HalfLine, Product, Sphere, Stiefel, product
from pymc_geodesic.runtime.streams import new_stream
from tests.mutants import UNBALANCED

ANGLES = [1e-9, 1e-6, 0.01, 0.3, 1.0, 3.0]
"""ρ = Cε."""

THERMOSTATS = [0.0, 0.4, -0.2]
"""ζ/ρ, ζ = ξε."""

STEP = 0.2
SPLITTINGS = pytest.mark.parametrize("splitting", [EXACT, PAPER], ids=["exact", "paper"])


@njit
def kick_from_python(v, gradient, noise, decay, noise_sd, drag, step_size, splitting):
    return kick_with_friction(v, gradient, noise, decay, noise_sd, drag, step_size, splitting)


@njit
def temperature_from_python(square, power, decay, step_size, splitting, dim):
    return position_temperature(square, power, decay, step_size, splitting, dim)


def coefficients(step_size, friction, known_noise, splitting):
    """Decay and noise sd of each coordinate, and the number of clipped ones."""
    friction, known_noise = np.array(friction, float), np.array(known_noise, float)
    decay, noise_sd = np.empty((2, friction.size))
    clips = friction_coefficients(step_size, friction, known_noise, splitting, decay, noise_sd)
    return decay, noise_sd, clips


def linear_kick(
    angle, splitting, *, thermostat=0.0, known_noise=0.0, step_size=STEP, kicks=kick_from_python
):
    """Factors of v and of the gradient in a kick and the variance of its noise, as measured."""
    decay, noise_sd, _ = coefficients(step_size, [angle / step_size], [known_noise], splitting)
    drag = math.exp(-thermostat)

    def after(v, gradient, noise):
        v, gradient, noise = (np.array([each]) for each in (v, gradient, noise))
        kicks(v, gradient, noise, decay, noise_sd, drag, step_size, splitting)
        return v[0]

    return after(1.0, 0.0, 0.0), after(0.0, 1.0, 0.0), after(0.0, 0.0, 1.0) ** 2


def free_temperature(angle, thermostat, splitting):
    """Mean of v² without a gradient: ρ/sinh(ρ + ζ) in the paper's splitting."""
    return (np.sinh(angle) if splitting == EXACT else angle) / np.sinh(angle + thermostat)


def temperature_of_positions(angle, thermostat, splitting, noise=0.0):
    """Variance times curvature, the gradient having unknown noise; the same at any curvature."""
    whole = angle + thermostat
    if splitting == EXACT:
        heating = 0.25 * STEP**2 * noise / np.tanh(0.5 * whole)
        return np.sinh(angle) / np.sinh(whole) + heating
    return (angle + 0.5 * STEP**2 * noise) / (2.0 * np.sinh(0.5 * whole))


@SPLITTINGS
@pytest.mark.parametrize("part", THERMOSTATS)
@pytest.mark.parametrize("angle", ANGLES)
def test_temperature_of_a_free_particle(angle, part, splitting):
    """The variance of v ← decay·v + noise settles at variance / (1 − decay²)."""
    decay, _, variance = linear_kick(angle, splitting, thermostat=part * angle)
    assert decay == pytest.approx(np.exp(-(1.0 + part) * angle), rel=1e-14)
    found = variance / -np.expm1(-2.0 * (1.0 + part) * angle)
    assert found == pytest.approx(free_temperature(angle, part * angle, splitting), rel=2e-7)


@pytest.mark.parametrize("noise", [0.0, 30.0])
@SPLITTINGS
@pytest.mark.parametrize("part", THERMOSTATS)
@pytest.mark.parametrize("angle", [0.01, 0.35, 1.0, 3.0])
@pytest.mark.parametrize("bend", [0.02, 0.35, 1.0, 1.8])
def test_positions_of_an_oscillator(bend, angle, part, splitting, noise):
    """By Lyapunov's equation for the state before a kick, with unknown noise of the gradient.

    Outside of kicks v·v is larger than the temperature, and a thermostat that held it at 1 would
    leave positions too narrow.
    """
    curvature = (bend / STEP) ** 2
    decay, gain, variance = linear_kick(angle, splitting, thermostat=part * angle)
    drift = np.array([[1.0, STEP], [0.0, 1.0]])
    kicked = np.array([[1.0, 0.0], [-gain * curvature, decay]])
    noises = np.diag([0.0, variance + gain**2 * noise])
    before = solve_discrete_lyapunov(drift @ kicked, drift @ noises @ drift.T)
    square, power = before[1, 1], -curvature * before[0, 1]
    half_way = np.array([[1.0, -0.5 * STEP], [0.0, 1.0]])
    positions = (half_way @ before @ half_way.T)[0, 0] * curvature
    expected = temperature_of_positions(angle, part * angle, splitting, noise)
    assert before[0, 0] * curvature >= positions
    assert positions == pytest.approx(expected, rel=1e-8)
    # the temperature that kernels compute, and moments of velocities before kicks
    found = temperature_from_python(square, power, decay, STEP, splitting, 1.0)
    assert found == pytest.approx(positions, rel=1e-8)
    ratio = 1.0 if splitting == EXACT else 1.0 / np.cosh(0.5 * (1.0 + part) * angle)
    assert square == pytest.approx(ratio * positions / (1.0 - 0.25 * ratio * bend**2), rel=1e-8)
    assert power == pytest.approx(-0.5 * STEP * curvature * square, rel=1e-8)


def oscillator_error(step_size, friction, thermostat, known, unknown, **options):
    """Deviation of the temperature of positions from that of the stochastic differential equation.

    Both noises of the gradient are variances; the friction of the thermostat that is given is in
    addition to what absorbs the unknown one, ε/2 of its variance.
    """
    whole_thermostat = thermostat + 0.5 * step_size * unknown
    decay, gain, variance = linear_kick(
        friction * step_size, known_noise=known, thermostat=whole_thermostat * step_size,
        step_size=step_size, **options,
    )  # fmt: skip
    variance += gain**2 * (known + unknown)
    exact = (friction + 0.5 * step_size * unknown) / (friction + whole_thermostat)
    return abs(variance * step_size / (2.0 * gain * (1.0 - decay)) - exact)


def observed_order(thermostat, known, unknown, **options):
    """Slope of `oscillator_error` against the step size."""
    errors = [
        oscillator_error(step, 1.3, thermostat, known, unknown, **options)
        for step in (0.004, 0.002)
    ]
    return math.log2(errors[0] / errors[1])


@SPLITTINGS
@pytest.mark.parametrize("unknown", [0.0, 8.0])
@pytest.mark.parametrize("known", [0.0, 8.0])
@pytest.mark.parametrize("thermostat", [0.0, 0.9, -0.6])
def test_positions_are_of_second_order_at_a_constant_thermostat(
    thermostat, known, unknown, splitting
):
    """Thermostat friction arranged symmetrically around friction, noise and known noise."""
    if splitting == EXACT and not thermostat and not unknown:
        assert oscillator_error(0.04, 1.3, 0.0, known, 0.0, splitting=EXACT) < 1e-12
        return
    assert observed_order(thermostat, known, unknown, splitting=splitting) > 1.95


@pytest.mark.parametrize("mutant", UNBALANCED, ids=str)
def test_unbalanced_thermostats_are_detected(mutant):
    order = observed_order(0.9, 0.0, 0.0, splitting=EXACT, kicks=mutant.compile())
    assert order < 1.5


@SPLITTINGS
def test_no_friction(splitting):
    assert linear_kick(0.0, splitting) == pytest.approx((1.0, STEP, 0.0))
    assert linear_kick(0.0, splitting, thermostat=-0.3)[2] == 0.0


def test_splittings_agree_to_second_order():
    differences = [
        np.abs(np.subtract(*(linear_kick(1.3 * step, s, step_size=step) for s in (EXACT, PAPER))))
        for step in (0.02, 0.01)
    ]
    slopes = np.log2(differences[0][1:] / differences[1][1:])
    np.testing.assert_allclose(slopes, 3.0, atol=0.05)


@SPLITTINGS
def test_known_noise_is_subtracted_once_and_clipped_at_zero(splitting):
    step, friction = 0.3, np.array([0.5, 2.0, 2.0, 2.0, 0.5])
    noise = np.array([0.0, 1.5, 60.0, 60.0, 0.0])
    decay, noise_sd, clips = coefficients(step, friction, noise, splitting)
    expected = np.exp(-friction * step)
    np.testing.assert_allclose(decay, expected, rtol=1e-14)
    if splitting == EXACT:
        left = 1.0 - expected**2 - (0.5 * step * (1.0 + expected)) ** 2 * noise
    else:
        left = expected * 2.0 * friction * step - (step**2 * expected) * noise
    assert (left[2:4] < 0.0).all()
    assert (left[[0, 1, 4]] > 0.0).all()
    np.testing.assert_allclose(noise_sd**2, np.maximum(left, 0.0), atol=1e-14)
    assert clips == 2


@SPLITTINGS
def test_kick_in_three_parts(splitting):
    """B O B written out, with half of a thermostat before and after O."""
    rng = np.random.default_rng(1)
    v, gradient, normal, noise_sd = rng.standard_normal((4, 7))
    decay = np.full(7, 0.7) if splitting == PAPER else rng.uniform(size=7)
    before, root = v.copy(), 0.8
    square, power = kick_from_python(v, gradient, normal, decay, noise_sd, root**2, STEP, splitting)
    if splitting == PAPER:
        half = np.sqrt(decay)
        expected = root * half * (root * half * before + STEP * gradient + noise_sd / half * normal)
    else:
        kicked = before + 0.5 * STEP * gradient
        expected = root * (decay * root * kicked + noise_sd * normal) + 0.5 * STEP * gradient
    np.testing.assert_allclose(v, expected, rtol=1e-13)
    assert (square, power) == pytest.approx((before @ before, before @ gradient))


def test_temperature_is_mean_square_over_the_dimension():
    assert kinetic_temperature(np.array([1.0, 2.0, 2.0]), 2.0) == 4.5


SPACE = Product([("s", Sphere(3), 4), ("b", Euclidean(2), 1), ("f", Stiefel(4, 2), 2)])


@pytest.fixture
def state():
    rng = np.random.default_rng(1)
    x = SPACE.random_point(rng)
    v = np.empty_like(x)
    refresh_velocity(SPACE.blocks, x, v, new_stream(rng))
    return x, v


def test_kicks_and_fresh_velocities_are_tangent(state):
    x, v = state
    kicked = v.copy()
    gradient = np.random.default_rng(2).standard_normal(x.size)
    kick(SPACE.blocks, x, kicked, gradient, 0.3)
    for vector in (v, kicked):
        spheres = SPACE.slices["s"]
        inner = (x[spheres] * vector[spheres]).reshape(4, 3).sum(axis=1)
        np.testing.assert_allclose(inner, 0.0, atol=1e-14)
        frames = x[SPACE.slices["f"]].reshape(2, 4, 2)
        inner = frames.swapaxes(1, 2) @ vector[SPACE.slices["f"]].reshape(2, 4, 2)
        np.testing.assert_allclose(inner + inner.swapaxes(1, 2), 0.0, atol=1e-14)
    np.testing.assert_allclose(kicked, SPACE.project(x, v + 0.3 * gradient), atol=1e-14)


def test_velocities_are_normal_on_the_tangent_space():
    space = Product([("x", Sphere(4), 50_000), ("y", HalfLine(2), 1)])
    rng = np.random.default_rng(1)
    x = space.random_point(rng)
    v = np.empty_like(x)
    refresh_velocity(space.blocks, x, v, new_stream(rng))
    squares = (v[:-2].reshape(-1, 4) ** 2).sum(axis=1)
    assert abs(squares.mean() - 3.0) < 5.0 * np.sqrt(6.0 / 50_000)
    assert abs(squares.var() - 6.0) < 5.0 * np.sqrt(8.0 * 6.0**2 / 50_000)


FORCE = np.random.default_rng(3).standard_normal(SPACE.size)


def gradient_at(x):
    """∇ of f·x + cos(2 g·x), smooth and skewed."""
    return FORCE - 2.0 * np.sin(2.0 * (FORCE[::-1] @ x)) * FORCE[::-1]


@njit
def drift_from_python(space, state, time, is_harmonic):
    drift(space, state, time, is_harmonic)


@njit
def cancel_from_python(space, state, time, is_harmonic):
    cancel_harmonic_force(space, state.x, state.v, time, is_harmonic)


INTEGRATORS = pytest.mark.parametrize("is_split", [False, True], ids=["leapfrog", "split"])


def leapfrog(x, v, step_size, n_steps, is_split=False, space=SPACE, gradient=gradient_at):
    state = State(x.copy(), v.copy())
    is_harmonic = np.full(x.size, True) if is_split else NOT_HARMONIC

    def half_a_kick():
        cancel_from_python(space.space, state, 0.5 * step_size, is_harmonic)
        kick(space.blocks, state.x, state.v, gradient(state.x), 0.5 * step_size)

    for _ in range(n_steps):
        half_a_kick()
        drift_from_python(space.space, state, step_size, is_harmonic)
        half_a_kick()
    return state.x, state.v


@INTEGRATORS
def test_leapfrog_is_reversible(state, is_split):
    x, v = state
    forward_x, forward_v = leapfrog(x, v, 0.05, 20, is_split)
    back_x, back_v = leapfrog(forward_x, -forward_v, 0.05, 20, is_split)
    np.testing.assert_allclose(back_x, x, atol=1e-12)
    np.testing.assert_allclose(back_v, -v, atol=1e-12)


@INTEGRATORS
def test_leapfrog_is_of_second_order(state, is_split):
    x, v = state
    ends = [np.concatenate(leapfrog(x, v, 0.5 / n, n, is_split)) for n in (40, 80, 160)]
    errors = [np.linalg.norm(coarse - fine) for coarse, fine in pairwise(ends)]
    assert np.log2(errors[0] / errors[1]) == pytest.approx(2.0, abs=0.05)


@pytest.mark.parametrize("step_size", [0.3, 1.5, 2.9])
def test_split_is_exact_for_a_standard_normal_distribution(step_size):
    """Also next to a uniform distribution on the sphere, which geodesics solve exactly."""
    space = Product([("b", Euclidean(3), 1), ("s", Sphere(3), 1)])
    space.scales[:] = 0.7, 1.3
    euclidean, sphere = space.slices["b"], space.slices["s"]
    rng = np.random.default_rng(1)
    x = space.random_point(rng)
    v = np.empty_like(x)
    refresh_velocity(space.blocks, x, v, new_stream(rng))

    def scaled_gradient(x):
        gradient = np.zeros_like(x)
        gradient[euclidean] = -space.scales[0] * x[euclidean]
        return gradient

    end, velocity = leapfrog(x, v, step_size, 3, True, space, scaled_gradient)
    angle = 3 * space.scales[0] * step_size
    rotated = (x + 1j * v)[euclidean] * np.exp(-1j * angle)
    np.testing.assert_allclose(end[euclidean], rotated.real, atol=1e-13)
    np.testing.assert_allclose(velocity[euclidean], rotated.imag, atol=1e-13)
    product.geodesic(space.blocks[1:], x, v, 3 * space.scales[1] * step_size)
    np.testing.assert_allclose(end[sphere], x[sphere], atol=1e-13)


def test_energy_error_of_the_split_is_of_second_order():
    """Close to N(0, I) it is also small at steps at which that of leapfrog steps is not."""
    space = Product([("b", Euclidean(3), 1)])
    x, v = np.random.default_rng(2).standard_normal((2, 3))

    def energy(x, v):
        return 0.5 * v @ v + 0.5 * x @ x + 0.01 * np.sum(x**4)

    def error(step_size, is_split=True):
        n_steps = round(1.5 / step_size)
        end = leapfrog(x, v, step_size, n_steps, is_split, space, lambda x: -x - 0.04 * x**3)
        return abs(energy(*end) - energy(x, v))

    assert np.log2(error(0.05) / error(0.025)) == pytest.approx(2.0, abs=0.05)
    assert error(0.75) < 0.3 * error(0.75, is_split=False)
