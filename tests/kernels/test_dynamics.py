"""Kernels without noise: reversibility, and second order in the step size."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

from pymc_geodesic.integrators import (
    EXACT,
    NOT_HARMONIC,
    PAPER,
    Scratch,
    State,
    Thermostat,
    refresh_velocity,
)
from pymc_geodesic.kernels import gsgnht, sggmc
from pymc_geodesic.runtime.gradient_functions import GradientFunction
from pymc_geodesic.runtime.streams import new_stream
from tests.kernels.drivers import called, compile_logp_grad, friction_of
from tests.targets import CONCENTRATION_AND_DIRECTION, Target

TARGET = CONCENTRATION_AND_DIRECTION
FRICTION = np.array([1.5, 0.7, 0.7, 0.7])
"""Of the concentration, and of the direction."""

HARMONIC = np.full(4, True)
"""Of the concentration alone: the direction is not Euclidean."""

INERTIA = np.array([2.0, 0.5])
KERNELS = [pytest.param(kernel, id=kernel.__name__) for kernel in (sggmc, gsgnht)]


def initial_state(kernel: Callable, target: Target = TARGET) -> list[np.ndarray]:
    """Position, velocity and, for gSGNHT, thermostats."""
    rng = np.random.default_rng(2)
    x = target.draw(rng, 1)[0]
    v = np.empty_like(x)
    refresh_velocity(target.product.blocks, x, v, new_stream(rng))
    thermostat = np.array([0.2, -0.1])[: len(target.product.dims)]
    return [x, v, thermostat][: 3 if kernel is gsgnht else 2]


def run(
    kernel: Callable,
    logp_grad: GradientFunction,
    state: list[np.ndarray],
    step_size: float,
    n_steps: int,
    *,
    target: Target = TARGET,
    compiled: Callable | None = None,
    friction: np.ndarray = FRICTION,
    splitting: int = EXACT,
    is_harmonic: np.ndarray = NOT_HARMONIC,
) -> list[np.ndarray]:
    """State after some steps without noise: a known variance replaces all of it."""
    product = target.product
    state = [part.copy() for part in state]
    n_blocks = len(product.dims)
    own: tuple = ()
    if kernel is gsgnht:  # with v·v/m held at 1 in both splittings
        angle = step_size * (friction[product.blocks[:, 1]] + state[2])
        temperatures = np.ones(n_blocks) if splitting == EXACT else np.cosh(0.5 * angle)
        own = (Thermostat(state[2], INERTIA, temperatures), np.zeros((n_blocks, 2)))
    (compiled or kernel)(
        called(logp_grad), np.zeros(n_steps, dtype=np.int64), product.space, State(*state[:2]),
        *own, step_size, is_harmonic,
        friction_of(product.size, friction[: product.size], 1e300, splitting),
        new_stream(np.random.default_rng(1)),
        Scratch(np.empty(product.size), np.empty(product.size)), np.empty(n_blocks),
    )  # fmt: skip
    return state


def observed_order(
    kernel: Callable,
    compiled: Callable | None = None,
    target: Target = TARGET,
    splitting: int = EXACT,
    is_harmonic: np.ndarray = NOT_HARMONIC,
) -> float:
    """Slope of the error of the damped flow against the step size."""
    logp_grad = compile_logp_grad(target)
    state = initial_state(kernel, target)
    options = {"target": target, "compiled": compiled, "splitting": splitting}
    options["is_harmonic"] = is_harmonic
    ends = [
        np.concatenate(run(kernel, logp_grad, state, 1.0 / n, n, **options)) for n in (50, 100, 200)
    ]
    coarse, fine = (np.linalg.norm(a - b) for a, b in pairwise(ends))
    return np.log2(coarse / fine)


@pytest.fixture(scope="module")
def logp_grad():
    return compile_logp_grad(TARGET)


@pytest.mark.parametrize(
    ("splitting", "is_harmonic"),
    [(EXACT, NOT_HARMONIC), (PAPER, NOT_HARMONIC), (EXACT, HARMONIC)],
    ids=["exact", "paper", "split"],
)
@pytest.mark.parametrize("kernel", KERNELS)
def test_second_order(kernel, splitting, is_harmonic):
    order = observed_order(kernel, splitting=splitting, is_harmonic=is_harmonic)
    assert order == pytest.approx(2.0, abs=0.05)


@pytest.mark.parametrize("is_harmonic", [NOT_HARMONIC, HARMONIC], ids=["leapfrog", "split"])
def test_sggmc_without_friction_is_reversible(logp_grad, is_harmonic):
    x, v = initial_state(sggmc)
    free = {"friction": np.zeros(4), "is_harmonic": is_harmonic}
    there_x, there_v = run(sggmc, logp_grad, [x, v], 0.05, 40, **free)
    back_x, back_v = run(sggmc, logp_grad, [there_x, -there_v], 0.05, 40, **free)
    assert np.linalg.norm(there_x - x) > 0.1
    np.testing.assert_allclose(back_x, x, atol=1e-12)
    np.testing.assert_allclose(back_v, -v, atol=1e-12)


@pytest.mark.parametrize(
    ("splitting", "is_harmonic"),
    [(EXACT, NOT_HARMONIC), (PAPER, NOT_HARMONIC), (EXACT, HARMONIC)],
    ids=["exact", "paper", "split"],
)
def test_gsgnht_without_noise_is_reversible(logp_grad, splitting, is_harmonic):
    """Changing the sign of velocities and thermostats reverses time."""
    x, v, xi = initial_state(gsgnht)
    free = {"friction": np.zeros(4), "splitting": splitting, "is_harmonic": is_harmonic}
    there = run(gsgnht, logp_grad, [x, v, xi], 0.05, 40, **free)
    turned = [there[0], -there[1], -there[2]]
    back = run(gsgnht, logp_grad, turned, 0.05, 40, **free)
    assert np.abs(there[2] - xi).min() > 0.01
    for expected, reached in zip([x, -v, -xi], back, strict=True):
        np.testing.assert_allclose(reached, expected, atol=1e-11)


@pytest.mark.parametrize("kernel", KERNELS)
def test_two_calls_continue_as_one(kernel, logp_grad):
    """Merged half geodesics end a call where the next one begins."""
    state = initial_state(kernel)
    whole = run(kernel, logp_grad, state, 0.05, 30)
    halves = run(kernel, logp_grad, run(kernel, logp_grad, state, 0.05, 10), 0.05, 20)
    for one, two in zip(whole, halves, strict=True):
        np.testing.assert_allclose(one, two, atol=1e-13)
