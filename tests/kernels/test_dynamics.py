"""Without noise the kernels are integrators: reversible, and of second order."""

from itertools import pairwise

import numpy as np
import pytest

from pymc_geodesic.fields import Field
from pymc_geodesic.integrators import EXACT, PAPER, refresh_velocity
from pymc_geodesic.kernels import gsgnht, sggmc
from pymc_geodesic.streams import new_stream
from tests.kernels.drivers import NO_NOISE, gradient_field
from tests.targets import CONCENTRATION_AND_DIRECTION as TARGET

PRODUCT = TARGET.product
SILENCED = np.full(PRODUCT.size, 1e300)
"""A known variance of the gradient that leaves nothing of the injected noise."""

FRICTION = np.array([1.5, 0.7])
KERNELS = [pytest.param(kernel, id=kernel.__name__) for kernel in (sggmc, gsgnht)]


def run(kernel, compiled, field: Field, state, step_size, n_steps, friction, known, splitting):
    """End state of a kernel: position, velocity and, for gSGNHT, thermostats."""
    state = [part.copy() for part in state]
    context = np.zeros(1, dtype=np.int64)
    arguments = np.zeros(n_steps, dtype=np.int64)
    stream = new_stream(np.random.default_rng(1))
    scratch = np.empty(PRODUCT.size), np.empty(PRODUCT.size)
    own = (state[2], np.array([2.0, 0.5])) if kernel is gsgnht else ()
    compiled(
        field.address, context, arguments, PRODUCT.blocks, PRODUCT.dims, state[0], state[1],
        *own, step_size, friction, known, splitting, stream, *scratch,
    )  # fmt: skip
    return state[:3] if kernel is gsgnht else state[:2]


def initial_state():
    rng = np.random.default_rng(2)
    x = TARGET.draw(rng, 1)[0]
    v = np.empty_like(x)
    refresh_velocity(PRODUCT.blocks, x, v, new_stream(rng))
    return [x, v, FRICTION.copy()]


def observed_order(kernel, compiled, splitting=EXACT):
    """Slope of the error of the damped, noiseless flow against the step size."""
    field = gradient_field(TARGET)
    ends = [
        np.concatenate(
            run(kernel, compiled, field, initial_state(), 1.0 / n, n, FRICTION, SILENCED, splitting)
        )
        for n in (50, 100, 200)
    ]
    coarse, fine = (np.linalg.norm(a - b) for a, b in pairwise(ends))
    return np.log2(coarse / fine)


@pytest.mark.parametrize("splitting", [EXACT, PAPER])
@pytest.mark.parametrize("kernel", KERNELS)
def test_second_order(kernel, splitting):
    assert observed_order(kernel, kernel, splitting) == pytest.approx(2.0, abs=0.05)


def test_sggmc_without_friction_is_reversible():
    field = gradient_field(TARGET)
    x, v, _ = initial_state()
    forth = run(sggmc, sggmc, field, [x, v], 0.05, 40, np.zeros(2), NO_NOISE, EXACT)
    back = run(sggmc, sggmc, field, [forth[0], -forth[1]], 0.05, 40, np.zeros(2), NO_NOISE, EXACT)
    assert np.linalg.norm(forth[0] - x) > 0.1
    np.testing.assert_allclose(back[0], x, atol=1e-12)
    np.testing.assert_allclose(back[1], -v, atol=1e-12)


@pytest.mark.parametrize("splitting", [EXACT, PAPER])
def test_gsgnht_without_noise_is_reversible(splitting):
    """Time runs backwards when velocities and thermostats change their sign."""
    field = gradient_field(TARGET)
    state = initial_state()
    x, v, xi = run(gsgnht, gsgnht, field, state, 0.05, 40, FRICTION, SILENCED, splitting)
    back = run(gsgnht, gsgnht, field, [x, -v, -xi], 0.05, 40, FRICTION, SILENCED, splitting)
    assert np.abs(xi - FRICTION).min() > 0.01
    for there, again in zip([state[0], -state[1], -state[2]], back, strict=True):
        np.testing.assert_allclose(again, there, atol=1e-11)


@pytest.mark.parametrize("kernel", KERNELS)
def test_two_calls_continue_as_one(kernel):
    """The merged half geodesics end a call where the next one begins."""
    field = gradient_field(TARGET)
    arguments = (0.05, FRICTION, SILENCED, EXACT)
    step_size, *rest = arguments
    whole = run(kernel, kernel, field, initial_state(), step_size, 30, *rest)
    half = run(kernel, kernel, field, initial_state(), step_size, 10, *rest)
    halves = run(kernel, kernel, field, half, step_size, 20, *rest)
    for one, two in zip(whole, halves, strict=True):
        np.testing.assert_allclose(one, two, atol=1e-13)
