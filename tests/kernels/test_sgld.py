"""SGLD: recursion, order, variances in closed form, and mutants; with averaged noise too."""

import math
from itertools import pairwise

import numpy as np
import pytest
from numba import njit
from scipy.linalg import solve_discrete_lyapunov

from pymc_geodesic.integrators import Scratch
from pymc_geodesic.kernels import sgld
from pymc_geodesic.runtime.streams import fill_normal, new_stream, split_stream
from tests.grids import by_default
from tests.kernels.drivers import called, compile_logp_grad, run_sgld
from tests.mutants import (
    BIASED_ADAGRAD,
    BIASED_AVERAGED_NOISE,
    BIASED_LANGEVIN,
    LANGEVIN_STEP,
    Mutant,
)
from tests.native_functions import native_function
from tests.targets import LAPLACE, LIMIT, LOG_GAMMA

N_CHAINS = 20_000
SIZE = 5
NOTHING = np.empty(0)
FRESH = {"step_size": 0.05, "n_steps": 600}
UNEVEN = np.array([9.0, 0.04]) ** 2 * 1e8
"""Squares so large that 600 more change nothing: √P is 1/300 and 1/20."""

PRECONDITIONED = {"step_size": 1.5, "n_steps": 600, "squares": UNEVEN}


@njit
def rugged(position, argument, context, output):
    """∇ of −Σ (xᵢ²/2 + i sin xᵢ), times 1 + argument."""
    for i in range(position.size):
        output[i] = -(1.0 + argument) * (position[i] + i * np.cos(position[i]))
    return 0.0


def run(
    logp_grad, x, step_size, arguments, squares, stream, kernel=sgld, last=NOTHING, known=NOTHING
):
    """Run the kernel."""
    scratch = Scratch(np.empty(x.size), np.empty(x.size))
    return kernel(called(logp_grad), arguments, x, step_size, squares, last, known, stream, scratch)


def by_hand(x, step_size, arguments, squares, stream, last, known):
    """Eq. 26 with AdaGrad in NumPy, or with noise values that each act in two steps."""
    pull, total, square = 0.5 * step_size**2, 0.0, 0.0
    left = np.sqrt(1.0 - pull * known / (2.0 - pull)) if known.size else 1.0
    for argument in arguments:
        gradient = -(1.0 + argument) * (x + np.arange(SIZE) * np.cos(x))
        noise = draws(stream, SIZE)
        metric = np.ones(SIZE)
        if squares.size:
            squares += gradient**2
            metric = 1.0 / (1.0 + np.sqrt(squares))
        total -= x @ gradient
        normal = 0.5 * (last + noise) if last.size else noise
        change = pull * metric * gradient + step_size * left * np.sqrt(metric) * normal
        x += change
        square += 0.0 if squares.size else change @ change
        last[:] = noise if last.size else last
    n = SIZE * arguments.size
    return total / n, square / n, 0


def draws(stream, n):
    noise = np.empty(n)
    fill_normal(stream, noise)
    return noise


@pytest.mark.parametrize("known", [NOTHING, np.linspace(0.0, 2.0, SIZE)], ids=["", "known"])
@pytest.mark.parametrize("last", [NOTHING, np.linspace(-0.4, 0.5, SIZE)], ids=["Euler", "averaged"])
@pytest.mark.parametrize("squares", [NOTHING, np.zeros(SIZE)], ids=["plain", "AdaGrad"])
def test_recursion_by_hand(squares, last, known):
    arguments = np.random.default_rng(1).integers(3, size=40)
    logp_grad, ends = native_function(rugged, SIZE), []
    for step in (by_hand, lambda *state, **noise: run(logp_grad, *state, **noise)):
        x, own, own_last = np.linspace(-2.0, 2.0, SIZE), squares.copy(), last.copy()
        stream = new_stream(np.random.default_rng(2))
        found = step(x, 0.3, arguments, own, stream, last=own_last, known=known)
        ends.append((x, own, own_last, stream, found))
    for expected, found in zip(*ends, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-11)
    assert (ends[0][1] > 1.0).all()


@pytest.mark.slow
def test_first_order_in_the_square_of_the_step():
    """Without noise the kernel is Euler's method for dx = ½ ∇log π dt."""
    silent = Mutant("no noise", sgld, edit=(LANGEVIN_STEP, "0.0")).compile()
    ends = []
    for n in (50, 100, 200):
        x, stream = np.linspace(-2.0, 2.0, SIZE), new_stream(np.random.default_rng(2))
        arguments = np.zeros(n, dtype=np.int64)
        run(native_function(rugged, SIZE), x, n**-0.5, arguments, NOTHING, stream, silent)
        ends.append(x)
    coarse, fine = (np.linalg.norm(a - b) for a, b in pairwise(ends))
    assert np.log2(coarse / fine) == pytest.approx(1.0, abs=0.1)


CURVATURES = np.array([0.5, 2.0, 8.0])
KICK = 3.0


@njit
def noisy_normal(position, argument, context, output):
    """Gradient of a normal distribution plus a kick whose sign is the argument."""
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
    logp_grad = native_function(noisy_normal, 3)
    signs = rng.choice([-1, 1], size=(N_CHAINS, n_steps)) * int(noisy)
    for chain in range(N_CHAINS):
        run(logp_grad, x[chain], step_size, signs[chain], NOTHING, streams[chain], kernel)
    assert (1.0 - 2.0 * pull).max() ** n_steps < 0.2
    return np.abs(x.var(axis=0) / expected - 1.0) / math.sqrt(2.0 / N_CHAINS)


@pytest.mark.parametrize("noisy", [False, True], ids=["exact gradient", "noisy gradient"])
def test_variance_of_a_normal_distribution(noisy):
    """(1 + h²V/4) / (λ(1 − h²λ/4)): off by half for the stiffest coordinate at this step."""
    assert variance_deviations(noisy).max() < LIMIT


@pytest.fixture(scope="module", params=[LOG_GAMMA, LAPLACE], ids=str)
def target(request):
    return request.param


@pytest.fixture(scope="module")
def logp_grad(target):
    return compile_logp_grad(target)


def test_exact_draws_stay_exact(target, logp_grad):
    x = run_sgld(target, logp_grad, N_CHAINS, **FRESH)
    assert target.worst(x) < LIMIT, target.deviations(x)


@pytest.fixture(scope="module")
def laplace():
    return compile_logp_grad(LAPLACE)


SMALL_FAULTS = ["sgld: noise 10 % too small"]


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


STEP = 0.9
KICKS = np.array([0.0, 0.6, 1.0])
"""Standard deviations of the gradient noise in whitened coordinates; h²b is up to 0.81."""


@njit
def kicked_normal(position, argument, context, output):
    """Gradient of N(0, I) plus a kick whose sign is the argument."""
    for i in range(3):
        output[i] = -position[i] + KICKS[i] * argument
    return 0.0


@njit
def quartic(position, argument, context, output):
    """Gradient of −x²/2 − x⁴/4."""
    output[0] = -position[0] - position[0] ** 3
    return 0.0


@pytest.mark.parametrize("step_size", [0.1, 0.7, 1.3, 1.9])
@pytest.mark.parametrize("part", [0.0, 0.2, 1.0])
def test_variance_with_averaged_noise_by_the_lyapunov_equation(step_size, part):
    """(x, ν) is a linear recursion, measured on the kernel; its stationary variance is 1.

    The gradient noise is that part of the noise of the dynamics, and known.
    """
    logp_grad = native_function(kicked_normal, 3)
    normal, pull = draws(new_stream(np.random.default_rng(5)), 3)[0], 0.5 * step_size**2
    noise = part * (2.0 - pull) / pull
    known = np.full(3, noise)

    def after(x, last):
        x, last = np.full(3, x), np.full(3, last)
        run(
            logp_grad, x, step_size, np.zeros(1, dtype=np.int64), NOTHING,
            new_stream(np.random.default_rng(5)), last=last, known=known,
        )  # fmt: skip
        return np.array([x[0], last[0]])

    drive = after(0.0, 0.0)
    moves = np.column_stack([after(1.0, 0.0) - drive, after(0.0, 1.0) - drive])
    gradient_noise = np.diag([pull**2 * noise, 0.0])
    injected = np.outer(drive, drive) / normal**2
    stationary = solve_discrete_lyapunov(moves, injected + gradient_noise)
    assert stationary[0, 0] == pytest.approx(1.0, rel=1e-9)


@pytest.fixture(scope="module")
def kicked():
    return native_function(kicked_normal, 3)


def averaged_deviations(logp_grad, kernel=sgld):
    """Standard errors between the squares of chains and their stationary mean.

    The chains start where x and ν have the covariance of the recursion: E xν = hc/2.
    """
    n_steps, rng = 60, np.random.default_rng(3)
    pull = STEP**2 / 2.0
    shared = STEP * np.sqrt(1.0 - pull * KICKS**2 / (2.0 - pull)) / 2.0
    last = rng.standard_normal((N_CHAINS, 3))
    x = shared * last + np.sqrt(1.0 - shared**2) * rng.standard_normal((N_CHAINS, 3))
    signs = rng.choice([-1, 1], size=(N_CHAINS, n_steps))
    streams = split_stream(new_stream(rng), N_CHAINS)
    for chain in range(N_CHAINS):
        run(
            logp_grad, x[chain], STEP, signs[chain], NOTHING, streams[chain], kernel, last[chain],
            KICKS**2,
        )  # fmt: skip
    return np.abs(np.mean(x**2, axis=0) - 1.0) / math.sqrt(2.0 / N_CHAINS)


def test_averaged_noise_keeps_exact_draws_exact(kicked):
    assert averaged_deviations(kicked).max() < 4.0


FAULTS_OF_AVERAGES = ["sgld: noise that is not carried over", "sgld: known noise left in"]


@pytest.mark.parametrize(
    "mutant", by_default(FAULTS_OF_AVERAGES, of=BIASED_AVERAGED_NOISE), ids=str
)
def test_broken_averages_are_rejected(mutant, kicked):
    assert averaged_deviations(kicked, mutant.compile()).max() > 4.0


def test_known_noise_that_exceeds_that_of_the_dynamics_is_counted(kicked):
    x, last, stream = np.zeros(3), np.zeros(3), new_stream(np.random.default_rng(4))
    known, arguments = np.array([0.0, 1.0, 100.0]), np.ones(2, dtype=np.int64)
    _, _, clips = run(kicked, x, STEP, arguments, NOTHING, stream, last=last, known=known)
    assert clips == 1


def test_positions_are_of_second_order_with_averaged_noise():
    """−x²/2 − x⁴/4 at h = 0.7: Euler's variance is 20 % too large, this one within 2 %."""
    grid = np.linspace(-6.0, 6.0, 20_001)
    weight = np.exp(-(grid**2) / 2.0 - grid**4 / 4.0)
    exact = weight @ grid**2 / weight.sum()
    x, last, stream = np.zeros(1), np.zeros(1), new_stream(np.random.default_rng(5))
    logp_grad, one = native_function(quartic, 1), np.zeros(1, dtype=np.int64)
    squares = np.empty(400_000)
    for i in range(squares.size):
        run(logp_grad, x, 0.7, one, NOTHING, stream, last=last)
        squares[i] = x[0] ** 2
    error = squares.reshape(200, -1).mean(axis=1).std() / math.sqrt(200)
    assert error / exact < 0.005
    assert squares.mean() == pytest.approx(exact, rel=0.02)
