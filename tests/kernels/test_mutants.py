"""Mutant kernels are rejected by the tests that the correct kernels pass."""

import math
from dataclasses import replace

import numpy as np
import pytest
from numba import njit

from pymc_geodesic.kernels import gmc, gsgnht, sggmc
from tests.grids import by_default
from tests.kernels.drivers import compile_logp_grad, run_gmc, run_langevin, side_by_side
from tests.kernels.test_dynamics import observed_order
from tests.mutants import (
    ASYMMETRIC,
    BIASED,
    REJECTED,
    UNPROJECTED,
    Mutant,
    scaled_tangent_geodesic,
)
from tests.targets import ALPHA, DIRICHLET_ON_SPHERE, LIMIT, VON_MISES_FISHER

N_CHAINS = 20_000
"""As many chains as the tests of the real kernels have."""

TARGET = VON_MISES_FISHER
BIG_STEP = 0.6


@pytest.fixture(scope="module")
def logp_grad():
    return compile_logp_grad(TARGET)


@pytest.fixture(scope="module")
def many():
    return side_by_side(TARGET, N_CHAINS)


def run(kernel, compiled, logp_grad, many, n=N_CHAINS, target=TARGET):
    """Positions, velocities if the kernel has any, and acceptance rates."""
    if kernel is gmc:
        x, acceptance = run_gmc(target, *many, n, step_size=BIG_STEP, kernel=compiled)
        return x, None, acceptance.mean()
    inertia = 2.0 if kernel is gsgnht else None
    ends = run_langevin(target, logp_grad, n, inertia=inertia, kernel=compiled)
    return ends.x, ends.v, 1.0


@pytest.mark.parametrize("kernel", [gmc, sggmc, gsgnht], ids=lambda kernel: kernel.__name__)
def test_real_kernels_pass(kernel, logp_grad, many):
    x, v, acceptance = run(kernel, kernel, logp_grad, many)
    assert TARGET.worst(x, v) < LIMIT
    assert acceptance > 0.8


FAULTS = [
    "sggmc: noise 10 % too small",
    "gsgnht: wrong thermometer",
    "gmc: velocities 10 % too small",
]
"""One of each kernel; the others are slow."""


@pytest.mark.parametrize("mutant", by_default(FAULTS, of=BIASED), ids=str)
def test_biased_kernels_are_rejected(mutant, logp_grad, many):
    x, v, _ = run(mutant.kernel, mutant.compile(), logp_grad, many)
    assert TARGET.worst(x, v) > LIMIT


@pytest.mark.slow
@pytest.mark.parametrize("mutant", REJECTED, ids=str)
def test_rejected_proposals_are_detected(mutant, logp_grad, many):
    _, _, acceptance = run(mutant.kernel, mutant.compile(), logp_grad, many)
    assert acceptance < 0.8


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [gmc, sggmc, gsgnht], ids=lambda kernel: kernel.__name__)
def test_velocities_are_tangent_at_every_geodesic(kernel, logp_grad):
    watched = Mutant("none", kernel, {"scaled_geodesic": scaled_tangent_geodesic}).compile()
    run(kernel, watched, logp_grad, side_by_side(TARGET, 1), n=1)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", by_default([str(UNPROJECTED[0])], of=UNPROJECTED), ids=str)
def test_velocities_off_the_tangent_space_are_detected(mutant, logp_grad):
    with pytest.raises(ArithmeticError, match="not tangent"):
        run(mutant.kernel, mutant.compile(), logp_grad, side_by_side(TARGET, 1), n=1)


OF_FIRST_ORDER = ["sggmc: explicit friction", "gsgnht: thermostat after a kick only"]


@pytest.mark.slow
@pytest.mark.parametrize("mutant", by_default(OF_FIRST_ORDER, of=ASYMMETRIC), ids=str)
def test_kernels_of_lower_order_are_detected(mutant):
    assert observed_order(mutant.kernel, mutant.compile(), TARGET) < 1.5


@njit
def without_volume(q, gradient):
    """The density of proportions, without the volume of the square-root chart."""
    total = 0.0
    for k in range(3):
        gradient[k] = (2.0 * ALPHA[k] - 2.0) / q[k]
        total += (2.0 * ALPHA[k] - 2.0) * math.log(abs(q[k]))
    return total


def test_dropped_log_volume_is_rejected():
    right = DIRICHLET_ON_SPHERE
    wrong = replace(right, log_density=without_volume)
    ends = run_langevin(right, compile_logp_grad(wrong), N_CHAINS)
    assert right.worst(ends.x, ends.v) > LIMIT


def test_mutants_must_fit_their_kernel():
    with pytest.raises(ValueError, match="fits its kernel no longer"):
        Mutant("", sggmc, edit=("no such line", "pass")).compile()
    with pytest.raises(ValueError, match="fits its kernel no longer"):
        Mutant("", sggmc, {"no_such_function": np.sin}).compile()
