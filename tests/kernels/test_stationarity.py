"""Stationarity of the kernels: chains from exact draws keep the target distribution."""

import functools

import numpy as np
import pytest

from tests.grids import by_default
from tests.kernels.drivers import (
    compile_logp_grad,
    run_gmc,
    run_langevin,
    side_by_side,
    thermostat_errors,
)
from tests.targets import (
    CONCENTRATION_AND_DIRECTION,
    DIRICHLET_ON_SIMPLEX,
    LIMIT,
    TARGETS,
    VON_MISES_FISHER,
    gradient_error,
)

N_CHAINS, INERTIA = 20_000, 2.0


@pytest.fixture(scope="module", params=TARGETS, ids=str)
def target(request):
    return request.param


logp_grad_of = functools.cache(compile_logp_grad)


@pytest.fixture
def logp_grad(target):
    return logp_grad_of(target)


SOME = [VON_MISES_FISHER, CONCENTRATION_AND_DIRECTION, DIRICHLET_ON_SIMPLEX]
"""A curved, a mixed and a bounded target. By default only SGGMC runs on all targets."""

some_targets = pytest.mark.parametrize(
    "target", by_default([str(each) for each in SOME], of=TARGETS), ids=str, indirect=True
)


def on_manifold(target, x):
    return target.product.contains(target.product.from_coordinates(x), atol=1e-12).all()


def test_gradient_of_the_target(target):
    assert gradient_error(target) < 1e-6


def test_exact_draws_pass(target):
    assert target.worst(target.draw(np.random.default_rng(9), N_CHAINS)) < LIMIT


@pytest.mark.parametrize("inertia", [None, INERTIA], ids=["sggmc", "gsgnht"])
def test_split_hamiltonian(inertia):
    target = CONCENTRATION_AND_DIRECTION
    ends = run_langevin(target, logp_grad_of(target), N_CHAINS, inertia=inertia, is_harmonic=True)
    assert target.worst(ends.x, ends.v) < LIMIT, target.deviations(ends.x, ends.v)


def test_sggmc(target, logp_grad):
    ends = run_langevin(target, logp_grad, N_CHAINS)
    assert on_manifold(target, ends.x)
    assert target.worst(ends.x, ends.v) < LIMIT, target.deviations(ends.x, ends.v)


@some_targets
def test_gsgnht(target, logp_grad):
    ends = run_langevin(target, logp_grad, N_CHAINS, inertia=INERTIA)
    assert on_manifold(target, ends.x)
    assert target.worst(ends.x, ends.v) < LIMIT, target.deviations(ends.x, ends.v)
    assert thermostat_errors(ends, target, INERTIA) < LIMIT


@some_targets
@pytest.mark.parametrize(
    "integrator",
    [{}, {"is_harmonic": True}, {"is_harmonic": True, "stages": 2}],
    ids=["leapfrog", "split", "quadrature"],
)
def test_gmc(target, integrator):
    blocks, logp_grad = side_by_side(target, N_CHAINS)
    x, acceptance = run_gmc(target, blocks, logp_grad, N_CHAINS, **integrator)
    assert on_manifold(target, x)
    assert target.worst(x) < LIMIT, target.deviations(x)
    assert acceptance.mean() > 0.5
