"""Models that say where chains begin can be copied, and their copies begin there as well."""

import copy

import cloudpickle
import numpy as np
import pymc as pm
import pytest
from scipy import sparse

from pymc_geodesic.counts.layout import family_of
from pymc_geodesic.datasets import make_vmf_mixture
from pymc_geodesic.models import lda, medlda, spherical_admixture, vmf_mixture

COUNTS = np.random.default_rng(1).poisson(1.0, size=(6, 4))
VECTORS = np.sqrt((COUNTS + 1.0) / (COUNTS + 1.0).sum(axis=1, keepdims=True))
POINTS, _ = make_vmf_mixture(np.eye(3), 50.0, 60, random_seed=1)

EVEN = np.full((6, 2), 0.5)

# Each model, a value of one of its variables, and the variables that begin at no draws.
MODELS = {
    "lda": (lambda: lda(COUNTS, 2), {"theta": EVEN}, []),
    "medlda": (lambda: medlda(COUNTS, np.arange(6) % 3, 2), {"weights": np.zeros((2, 3))}, []),
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
    "spherical": (lambda: spherical_admixture(VECTORS, 2), {"theta": EVEN}, []),
    "with its mean": (
        lambda: spherical_admixture(VECTORS, 2, collapse_mean=False),
        {"theta": EVEN},
        [],
    ),
}
COPIES = {
    "copy": copy.deepcopy,
    "pickle": lambda model: cloudpickle.loads(cloudpickle.dumps(model)),
    "model.copy": lambda model: model.copy(),
}


@pytest.fixture(scope="module", params=MODELS)
def case(request):
    make, value, given = MODELS[request.param]
    return make(), value, given


def begins(model):
    return model.initial_point(random_seed=3)


def starts_of(model, names):
    point = begins(model)
    return [point[model.rvs_to_values[model[name]].name] for name in names]


def assert_same_start(copied, model, names):
    for found, expected in zip(starts_of(copied, names), starts_of(model, names), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_copies_in_which_a_variable_is_known_begin_at_the_start(case):
    model, value, given = case
    (name,) = value
    observed, done = pm.observe(model, value), pm.do(model, value)
    assert name in {rv.name for rv in observed.observed_RVs}
    assert name not in {rv.name for rv in done.basic_RVs}
    assert_same_start(observed, model, given)
    assert_same_start(done, model, given)


@pytest.mark.parametrize("how", COPIES)
def test_copies_have_variables_of_the_same_kind(case, how):
    model, _, given = case
    copied = COPIES[how](model)
    assert {rv.name for rv in copied.free_RVs} == {rv.name for rv in model.free_RVs}
    for rv in model.free_RVs:
        assert family_of(copied[rv.name]) == family_of(rv)
        transforms = (copied.rvs_to_transforms[copied[rv.name]], model.rvs_to_transforms[rv])
        assert type(transforms[0]) is type(transforms[1])
    assert_same_start(copied, model, given)


def test_copies_have_the_same_density():
    model = vmf_mixture(POINTS, 3)
    point = begins(model)
    found = [each.compile_logp(mode="FAST_COMPILE")(point) for each in (model, pm.do(model, {}))]
    assert found[0] == pytest.approx(found[1], rel=1e-12)


@pytest.mark.parametrize(("name", "topics"), [("lda", "topics"), ("with its mean", "beta")])
def test_topics_begin_at_different_draws(name, topics):
    model = MODELS[name][0]()
    value = model.rvs_to_values[model[topics]].name
    first, second = begins(model)[value]
    assert not np.allclose(first, second)
    np.testing.assert_array_equal(begins(model)[value], [first, second])
    assert not np.allclose(model.initial_point(random_seed=4)[value][0], first)
    assert not np.allclose(begins(pm.observe(model, {}))[value][0], begins(model)[value][1])


def test_topics_begin_where_a_sparse_prior_has_no_zeros():
    start = begins(lda(COUNTS, 2, beta=1e-4))["topics_simplex__"]
    assert np.abs(start).max() < 20.0


def test_the_start_is_that_of_maximum_likelihood():
    model, prior = vmf_mixture(POINTS, 3), vmf_mixture(POINTS, 3, start="prior")
    names = ["mu", "kappa", "sticks"]
    starts = starts_of(model, names)
    np.testing.assert_allclose(starts[0] @ np.ones(3), 1.0, atol=0.1)  # axes, in any order
    for start, other in zip(starts, starts_of(prior, names), strict=True):
        assert not np.allclose(start, other)
