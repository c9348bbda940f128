"""SGLD: its recursion, its order, the variance it has in closed form, and broken copies of it."""

import math
from itertools import pairwise

import numpy as np
import pytest

from pymc_geodesic.integrators import Scratch
from pymc_geodesic.kernels import sgld
from pymc_geodesic.runtime.fields import native_field
from pymc_geodesic.runtime.streams import fill_normal, new_stream, split_stream
from tests.grids import by_default
from tests.kernels.drivers import called, gradient_field, run_sgld
from tests.machine_code import kept
from tests.mutants import BIASED_ADAGRAD, BIASED_LANGEVIN, Mutant
from tests.targets import LAPLACE, LIMIT, LOG_GAMMA

N_CHAINS = 20_000
SIZE = 5
NO_SQUARES = np.empty(0)
FRESH = {"step_size": 0.05, "n_steps": 600}
UNEVEN = np.array([9.0, 0.04]) ** 2 * 1e8
"""Squares so large that 600 more change nothing: √P is 1/300 and 1/20."""

PRECONDITIONED = {"step_size": 1.5, "n_steps": 600, "squares": UNEVEN}


@kept
def rugged(position, argument, context, output):
    """∇ of −Σ (xᵢ²/2 + i sin xᵢ), times 1 + argument."""
    for i in range(position.size):
        output[i] = -(1.0 + argument) * (position[i] + i * np.cos(position[i]))
    return 0.0


def run(field, x, step_size, arguments, squares, stream, kernel=sgld):
    """Run the kernel with scratch space of three numbers, so that noise comes in chunks."""
    scratch = Scratch(np.empty(x.size), np.empty(3))
    kernel(called(field), arguments, x, step_size, squares, stream, scratch)


def by_hand(x, step_size, arguments, squares, stream):
    """Eq. 26 with AdaGrad in NumPy."""
    for argument in arguments:
        gradient = -(1.0 + argument) * (x + np.arange(SIZE) * np.cos(x))
        noise = np.concatenate([draws(stream, 3), draws(stream, 2)])
        metric = np.ones(SIZE)
        if squares.size:
            squares += gradient**2
            metric = 1.0 / (1.0 + np.sqrt(squares))
        x += 0.5 * step_size**2 * metric * gradient + step_size * np.sqrt(metric) * noise


def draws(stream, n):
    noise = np.empty(n)
    fill_normal(stream, noise)
    return noise


@pytest.mark.parametrize("squares", [NO_SQUARES, np.zeros(SIZE)], ids=["plain", "AdaGrad"])
def test_recursion_by_hand(squares):
    rng = np.random.default_rng(1)
    arguments = rng.integers(3, size=40)
    states = []
    for step in (by_hand, lambda *state: run(native_field(rugged, SIZE), *state)):
        x, own = np.linspace(-2.0, 2.0, SIZE), squares.copy()
        stream = new_stream(np.random.default_rng(2))
        step(x, 0.3, arguments, own, stream)
        states.append((x, own, stream))
    for expected, found in zip(*states, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert (states[0][1] > 1.0).all()


def test_first_order_in_the_square_of_the_step():
    """Without noise the kernel is Euler's method for dx = ½ ∇log π dt."""
    silent = Mutant("no noise", sgld, edit=("+ step_size * noise", "+ 0.0 * noise")).compile()
    ends = []
    for n in (50, 100, 200):
        x, stream = np.linspace(-2.0, 2.0, SIZE), new_stream(np.random.default_rng(2))
        arguments = np.zeros(n, dtype=np.int64)
        run(native_field(rugged, SIZE), x, n**-0.5, arguments, NO_SQUARES, stream, silent)
        ends.append(x)
    coarse, fine = (np.linalg.norm(a - b) for a, b in pairwise(ends))
    assert np.log2(coarse / fine) == pytest.approx(1.0, abs=0.1)


CURVATURES = np.array([0.5, 2.0, 8.0])
KICK = 3.0


@kept
def noisy_normal(position, argument, context, output):
    """Gradient of a normal law plus a kick whose sign is the argument."""
    for i in range(3):
        output[i] = -CURVATURES[i] * position[i] + KICK * argument
    return 0.0


def variance_deviations(noisy, kernel=sgld):
    """Standard errors between the variance of long chains and that of the linear recursion."""
    step_size, n_steps = 0.6, 80
    rng = np.random.default_rng(3)
    noise = KICK**2 if noisy else 0.0
    pull = 0.25 * step_size**2 * CURVATURES
    expected = (1.0 + 0.25 * step_size**2 * noise) / (CURVATURES * (1.0 - pull))
    x = rng.standard_normal((N_CHAINS, 3)) * np.sqrt(expected)
    streams = split_stream(new_stream(rng), N_CHAINS)
    field = native_field(noisy_normal, 3)
    signs = rng.choice([-1, 1], size=(N_CHAINS, n_steps)) * int(noisy)
    for chain in range(N_CHAINS):
        run(field, x[chain], step_size, signs[chain], NO_SQUARES, streams[chain], kernel)
    assert (1.0 - 2.0 * pull).max() ** n_steps < 0.2
    return np.abs(x.var(axis=0) / expected - 1.0) / math.sqrt(2.0 / N_CHAINS)


@pytest.mark.parametrize("noisy", [False, True], ids=["exact gradient", "noisy gradient"])
def test_variance_of_a_normal_law(noisy):
    """(1 + h²V/4) / (λ(1 − h²λ/4)): off by half for the stiffest coordinate at this step."""
    assert variance_deviations(noisy).max() < LIMIT


@pytest.fixture(scope="module", params=[LOG_GAMMA, LAPLACE], ids=str)
def target(request):
    return request.param


@pytest.fixture(scope="module")
def field(target):
    return gradient_field(target)


def test_exact_draws_stay_exact(target, field):
    x = run_sgld(target, field, N_CHAINS, **FRESH)
    assert target.worst(x) < LIMIT, target.deviations(x)


@pytest.fixture(scope="module")
def laplace():
    return gradient_field(LAPLACE)


SMALL_FAULTS = ["sgld: noise 10 % too small", "sgld: gradient 10 % too small"]


@pytest.mark.parametrize("mutant", by_default(SMALL_FAULTS, of=BIASED_LANGEVIN), ids=str)
def test_broken_kernels_are_rejected(mutant, laplace):
    x = run_sgld(LAPLACE, laplace, N_CHAINS, kernel=mutant.compile(), **FRESH)
    assert LAPLACE.worst(x) > LIMIT


def test_exact_draws_stay_exact_under_a_preconditioner(laplace):
    x = run_sgld(LAPLACE, laplace, N_CHAINS, **PRECONDITIONED)
    assert LAPLACE.worst(x) < LIMIT, LAPLACE.deviations(x)


@pytest.mark.parametrize(
    "mutant", by_default(["sgld: noise not scaled"], of=BIASED_ADAGRAD), ids=str
)
def test_broken_preconditioners_are_rejected(mutant, laplace):
    x = run_sgld(LAPLACE, laplace, N_CHAINS, kernel=mutant.compile(), **PRECONDITIONED)
    assert LAPLACE.worst(x) > LIMIT
