"""Cache of the log-density terms of a model, and its invalidation."""

import gc
import weakref

import numpy as np
import pymc as pm
import pytest

from pymc_geodesic.densities.model_terms import LogTerms, logp_terms


def make():
    with pm.Model() as model:
        s = pm.HalfNormal("s")
        pm.Normal("y", 0.0, s, observed=[1.0, 2.0])
        pm.Potential("p", -(s**2))
    return model


@pytest.fixture
def model():
    return make()


def test_terms_add_up_to_the_log_density_of_the_model(model):
    terms = logp_terms(model)
    assert [term.name for term in terms] == ["s", "y", "p"]
    point = model.initial_point()
    values = model.compile_fn(list(terms.values()), mode="FAST_COMPILE")(point)
    total = model.compile_logp(mode="FAST_COMPILE")(point)
    np.testing.assert_allclose(sum(value.sum() for value in values), total)


def test_terms_are_cached(model):
    assert logp_terms(model) is logp_terms(model)
    assert logp_terms(make()) is not logp_terms(model)


def add_a_variable(model):
    with model:
        pm.Normal("z")


def add_a_potential(model):
    with model:
        pm.Potential("q", -model["s"])


def take_a_transform_away(model):
    model.rvs_to_transforms[model["s"]] = None


@pytest.mark.parametrize("change", [add_a_variable, add_a_potential, take_a_transform_away])
def test_terms_of_a_changed_model_are_built_again(model, change):
    before = logp_terms(model)
    change(model)
    after = logp_terms(model)
    assert after is not before
    assert set(after) == {*model.basic_RVs, *model.potentials}


def test_cached_terms_do_not_keep_a_model_alive():
    model = make()
    logp_terms(model)
    watch = weakref.ref(model)
    del model
    gc.collect()
    assert watch() is None


def test_a_graph_that_needs_rewrites():
    """That of a conditional autoregression has a sum over an axis of a number."""
    neighbors = np.eye(4, k=1) + np.eye(4, k=-1)
    with pm.Model() as model:
        alpha = pm.Beta("alpha", 5.0, 1.0)
        pm.CAR("x", np.zeros(4), W=neighbors, alpha=alpha, tau=1.0)
    terms, point = LogTerms(model, (), ()), model.initial_point()
    assert not terms.fails(point)
    assert terms.report(point) is None
