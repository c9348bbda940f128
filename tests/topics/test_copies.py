"""Initial values of topic models, and of their copies."""

import numpy as np
import pymc as pm
import pytest

from pymc_geodesic.topics import lda, medlda, spherical_admixture
from tests.copies import (
    COPIES,
    assert_a_copy_has_variables_of_the_same_kind,
    assert_copies_with_a_known_variable_begin_at_the_start,
    begins,
)

COUNTS = np.random.default_rng(1).poisson(1.0, size=(6, 4))
VECTORS = np.sqrt((COUNTS + 1.0) / (COUNTS + 1.0).sum(axis=1, keepdims=True))
EVEN = np.full((6, 2), 0.5)

# Each model, a value of one of its variables, and the variables whose initial values are not draws.
MODELS = {
    "lda": (lambda: lda(COUNTS, 2), {"theta": EVEN}, []),
    "medlda": (lambda: medlda(COUNTS, np.arange(6) % 3, 2), {"weights": np.zeros((2, 3))}, []),
    "spherical": (lambda: spherical_admixture(VECTORS, 2), {"theta": EVEN}, []),
    "with its mean": (
        lambda: spherical_admixture(VECTORS, 2, collapse_mean=False),
        {"theta": EVEN},
        [],
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


@pytest.mark.parametrize(("name", "topics"), [("lda", "topics"), ("with its mean", "beta")])
def test_topics_start_at_different_draws(name, topics):
    model = MODELS[name][0]()
    value = model.rvs_to_values[model[topics]].name
    first, second = begins(model)[value]
    assert not np.allclose(first, second)
    np.testing.assert_array_equal(begins(model)[value], [first, second])
    assert not np.allclose(model.initial_point(random_seed=4)[value][0], first)
    assert not np.allclose(begins(pm.observe(model, {}))[value][0], begins(model)[value][1])


def test_initial_topics_of_a_sparse_prior_have_no_zeros():
    start = begins(lda(COUNTS, 2, beta=1e-4))["topics_simplex__"]
    assert np.abs(start).max() < 20.0
