"""Closed forms of the Langevin kick, reversibility and order of the geodesic leapfrog."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.linalg import solve_discrete_lyapunov

from pymc_geodesic.integrators import (
    EXACT,
    PAPER,
    kick,
    kinetic_temperature,
    langevin_coefficients,
    langevin_kick,
    refresh_velocity,
    temperature_within,
)
from pymc_geodesic.manifolds import Euclidean, HalfLine, Product, Sphere, Stiefel, product
from pymc_geodesic.runtime.streams import fill_normal, new_stream

ANGLES = [1e-9, 1e-6, 0.01, 0.3, 1.0, 3.0]
STEP = 0.2


def coefficients(angle, splitting, step_size=STEP):
    friction = angle / step_size
    return langevin_coefficients(friction, friction, step_size, splitting)


def sinhc(x):
    return np.sinh(x) / x


@pytest.mark.parametrize("angle", ANGLES)
def test_temperature_of_a_free_particle(angle):
    """The variance of v ← decay·v + noise settles at variance / (1 − decay²)."""
    for splitting, expected in ((EXACT, 1.0), (PAPER, 1.0 / sinhc(angle))):
        decay, _, variance = coefficients(angle, splitting)
        assert variance / -np.expm1(2.0 * np.log(decay)) == pytest.approx(expected, rel=2e-7)
        assert decay == pytest.approx(np.exp(-angle), rel=1e-14)


@pytest.mark.parametrize("angle", ANGLES)
def test_temperature_of_slow_positions(angle):
    """Fluctuation against dissipation of a position that moves little in a step."""
    for splitting, expected in ((EXACT, 1.0), (PAPER, 1.0 / sinhc(angle / 2))):
        decay, push, variance = coefficients(angle, splitting)
        temperature = variance * STEP / (2.0 * push * -np.expm1(np.log(decay)))
        assert temperature == pytest.approx(expected, rel=2e-7)


def oscillator_covariance(angle, splitting, frequency):
    """Stationary covariance of (x, v) after A B O B A on the potential ω²x²/2."""
    decay, push, variance = coefficients(angle, splitting)
    drift = np.array([[1.0, 0.5 * STEP], [0.0, 1.0]])
    kicked = np.array([[1.0, 0.0], [-push * frequency**2, decay]])
    noise = drift @ np.diag([0.0, variance]) @ drift.T
    return solve_discrete_lyapunov(drift @ kicked @ drift, noise)


@pytest.mark.parametrize("frequency", [0.1, 1.0, 5.0, 9.0])
@pytest.mark.parametrize("angle", ANGLES[2:])
def test_exact_splitting_samples_an_oscillator_exactly(angle, frequency):
    covariance = oscillator_covariance(angle, EXACT, frequency)
    assert covariance[0, 0] * frequency**2 == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize("noise", [0.0, 30.0])
@pytest.mark.parametrize("splitting", [EXACT, PAPER])
@pytest.mark.parametrize("angle", [0.1, 0.35, 1.0])
@pytest.mark.parametrize("bend", [0.35, 1.0])
def test_temperature_within_a_kick_is_that_of_positions(bend, angle, splitting, noise):
    """Also where the gradient has noise of variance V, which both halves of a kick share.

    By Lyapunov's equation for the state before a kick; outside of kicks v·v is larger than the
    temperature, and held at 1 it would leave positions too narrow.
    """
    frequency = bend / STEP
    decay, push, variance = coefficients(angle, splitting)
    drift = np.array([[1.0, STEP], [0.0, 1.0]])
    kicked = np.array([[1.0, 0.0], [-push * frequency**2, decay]])
    heat = np.diag([0.0, variance + push**2 * noise])
    before = solve_discrete_lyapunov(drift @ kicked, drift @ heat @ drift.T)
    square, power = before[1, 1], -(frequency**2) * before[0, 1]
    temperature = temperature_within(square, power, decay, push, 1.0)
    ratio = 2.0 * push / ((1.0 + decay) * STEP)
    half_way = np.array([[1.0, -0.5 * STEP], [0.0, 1.0]])
    position = (half_way @ before @ half_way.T)[0, 0] * frequency**2
    assert temperature / ratio == pytest.approx(position, rel=1e-9)
    assert ratio == pytest.approx(1.0 if splitting == EXACT else 1.0 / np.cosh(0.5 * angle))
    outside = 1.0 / (1.0 - 0.25 * ratio * bend**2)
    assert square / temperature == pytest.approx(outside, rel=1e-9)
    assert power == pytest.approx(-0.5 * STEP * frequency**2 * square, rel=1e-9)
    if splitting == EXACT:
        excess = 0.25 * STEP**2 * noise / np.tanh(0.5 * angle)
        assert temperature == pytest.approx(1.0 + excess, rel=1e-9)


def test_paper_splitting_cools_an_oscillator():
    """At a frequency that is low for the step, the closed form of slow positions."""
    covariance = oscillator_covariance(1.0, PAPER, 0.01)
    assert covariance[0, 0] * 0.01**2 == pytest.approx(1.0 / sinhc(0.5), rel=1e-4)


@pytest.mark.parametrize("splitting", [EXACT, PAPER])
def test_no_friction(splitting):
    assert langevin_coefficients(0.0, 0.0, STEP, splitting) == (1.0, STEP, 0.0)
    assert langevin_coefficients(0.0, 0.7, STEP, splitting) == pytest.approx(
        (1.0, STEP, 1.4 * STEP)
    )


def test_coefficients_are_smooth_where_the_formula_changes():
    below = langevin_coefficients(0.99e-8 / STEP, 0.7, STEP, EXACT)
    above = langevin_coefficients(1.01e-8 / STEP, 0.7, STEP, EXACT)
    np.testing.assert_allclose(below, above, rtol=3e-8)


@pytest.mark.parametrize("friction", [-4.0, -0.3, 0.3, 4.0])
def test_thermostat_of_either_sign(friction):
    """Exact flow of dv = −ξ v dt + sqrt(2D) dW, and of the gradient by halves around it."""
    diffusion = 0.7
    decay, push, variance = langevin_coefficients(friction, diffusion, STEP, EXACT)
    times = (np.arange(20_000) + 0.5) * STEP / 20_000
    integral = 2.0 * diffusion * np.exp(-2.0 * friction * times).mean() * STEP
    assert variance == pytest.approx(integral, rel=1e-8)
    assert decay == pytest.approx(np.exp(-friction * STEP))
    assert push == pytest.approx(0.5 * STEP + 0.5 * STEP * np.exp(-friction * STEP))


def test_splittings_agree_to_second_order():
    differences = [
        np.abs(
            np.subtract(
                langevin_coefficients(1.3, 0.7, step, EXACT),
                langevin_coefficients(1.3, 0.7, step, PAPER),
            )
        )
        for step in (0.02, 0.01)
    ]
    slopes = np.log2(differences[0][1:] / differences[1][1:])
    np.testing.assert_allclose(slopes, 3.0, atol=0.05)


def test_kick_adds_gradient_and_noise():
    rng = np.random.default_rng(1)
    v, gradient = rng.standard_normal((2, 7))
    before = v.copy()
    stream = new_stream(rng)
    expected = np.empty(7)
    fill_normal(stream.copy(), expected)
    clips, square, power = langevin_kick(
        v, gradient, 0.9, 0.2, 0.25, np.empty(0), stream, np.empty(7)
    )
    np.testing.assert_allclose(v, 0.9 * before + 0.2 * gradient + 0.5 * expected, rtol=1e-14)
    assert (clips, square, power) == pytest.approx((0, before @ before, before @ gradient))


def test_known_noise_is_taken_off_and_clipped_at_zero():
    known = np.array([0.0, 1.0, 4.0, 7.0])
    v = np.zeros(4)
    stream = new_stream(np.random.default_rng(1))
    drawn = np.empty(4)
    fill_normal(stream.copy(), drawn)
    clips, _, _ = langevin_kick(v, np.zeros(4), 1.0, 0.5, 1.25, known, stream, np.empty(4))
    np.testing.assert_allclose(v, np.sqrt([1.25, 1.0, 0.25, 0.0]) * drawn, rtol=1e-14)
    assert clips == 1


def test_noise_in_chunks_is_standard_normal():
    v = np.zeros(100_001)
    stream = new_stream(np.random.default_rng(1))
    langevin_kick(v, v.copy(), 1.0, 0.0, 1.0, np.empty(0), stream, np.empty(512))
    assert abs(v.mean()) * np.sqrt(v.size) < 5.0
    assert abs((v**2).mean() - 1.0) * np.sqrt(v.size / 2.0) < 5.0
    assert np.unique(v).size == v.size


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


def leapfrog(x, v, step_size, n_steps):
    x, v = x.copy(), v.copy()
    for _ in range(n_steps):
        kick(SPACE.blocks, x, v, gradient_at(x), 0.5 * step_size)
        product.geodesic(SPACE.blocks, x, v, step_size)
        kick(SPACE.blocks, x, v, gradient_at(x), 0.5 * step_size)
    return x, v


def test_leapfrog_is_reversible(state):
    x, v = state
    forward_x, forward_v = leapfrog(x, v, 0.05, 20)
    back_x, back_v = leapfrog(forward_x, -forward_v, 0.05, 20)
    np.testing.assert_allclose(back_x, x, atol=1e-12)
    np.testing.assert_allclose(back_v, -v, atol=1e-12)


def test_leapfrog_is_of_second_order(state):
    x, v = state
    ends = [np.concatenate(leapfrog(x, v, 0.5 / n, n)) for n in (40, 80, 160)]
    errors = [np.linalg.norm(coarse - fine) for coarse, fine in pairwise(ends)]
    assert np.log2(errors[0] / errors[1]) == pytest.approx(2.0, abs=0.05)
