"""Initial values of mixtures of directions, and of their copies."""

import numpy as np
import pymc as pm
import pytest
from scipy import sparse

from pymc_geodesic.datasets import make_vmf_mixture
from pymc_geodesic.mixtures import vmf_mixture
from tests.copies import (
    COPIES,
    assert_a_copy_has_variables_of_the_same_kind,
    assert_copies_with_a_known_variable_begin_at_the_start,
    begins,
    starts_of,
)

POINTS, _ = make_vmf_mixture(np.eye(3), 50.0, 60, random_seed=1)

# Each model, a value of one of its variables, and the variables whose initial values are not draws.
MODELS = {
    "vmf_mixture": (lambda: vmf_mixture(POINTS, 3), {"kappa": np.ones(3)}, ["mu", "sticks"]),
    "sparse": (
        lambda: vmf_mixture(sparse.csr_array(POINTS), 3),
        {"sticks": np.full(2, 0.5)},
        ["mu", "kappa"],
    ),
    "process": (
        lambda: vmf_mixture(POINTS, 3, dirichlet_process=True, shared_kappa=True),
        {"concentration": 1.0},
        ["mu", "kappa", "sticks"],
    ),
}


@pytest.fixture(scope="module", params=MODELS)
def case(request):
    make, value, given = MODELS[request.param]
    return make(), value, given


def test_copies_with_an_observed_variable_start_at_the_initial_values(case):
    assert_copies_with_a_known_variable_begin_at_the_start(*case)


@pytest.mark.parametrize("how", COPIES)
def test_copies_have_variables_of_the_same_type(case, how):
    model, _, given = case
    assert_a_copy_has_variables_of_the_same_kind(COPIES[how](model), model, given)


def test_copies_have_the_same_density():
    model = vmf_mixture(POINTS, 3)
    point = begins(model)
    found = [each.compile_logp(mode="FAST_COMPILE")(point) for each in (model, pm.do(model, {}))]
    assert found[0] == pytest.approx(found[1], rel=1e-12)


def test_initial_values_are_maximum_likelihood_estimates():
    model, prior = vmf_mixture(POINTS, 3), vmf_mixture(POINTS, 3, start="prior")
    names = ["mu", "kappa", "sticks"]
    starts = starts_of(model, names)
    np.testing.assert_allclose(starts[0] @ np.ones(3), 1.0, atol=0.1)  # axes, in any order
    for start, other in zip(starts, starts_of(prior, names), strict=True):
        assert not np.allclose(start, other)
