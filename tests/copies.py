"""Checks of initial points: copies of a model start chains at the same points."""

import copy

import cloudpickle
import numpy as np
import pymc as pm

from pymc_geodesic.counts.layout import family_of

COPIES = {
    "copy": copy.deepcopy,
    "pickle": lambda model: cloudpickle.loads(cloudpickle.dumps(model)),
    "model.copy": lambda model: model.copy(),
}


def begins(model):
    return model.initial_point(random_seed=3)


def starts_of(model, names):
    point = begins(model)
    return [point[model.rvs_to_values[model[name]].name] for name in names]


def assert_same_start(copied, model, names):
    for found, expected in zip(starts_of(copied, names), starts_of(model, names), strict=True):
        np.testing.assert_array_equal(found, expected)


def assert_copies_with_a_known_variable_begin_at_the_start(model, value, given):
    """If one variable is observed or replaced, the others start at the same values."""
    (name,) = value
    observed, done = pm.observe(model, value), pm.do(model, value)
    assert name in {rv.name for rv in observed.observed_RVs}
    assert name not in {rv.name for rv in done.basic_RVs}
    assert_same_start(observed, model, given)
    assert_same_start(done, model, given)


def assert_a_copy_has_variables_of_the_same_kind(copied, model, given):
    assert {rv.name for rv in copied.free_RVs} == {rv.name for rv in model.free_RVs}
    for rv in model.free_RVs:
        assert family_of(copied[rv.name]) == family_of(rv)
        transforms = (copied.rvs_to_transforms[copied[rv.name]], model.rvs_to_transforms[rv])
        assert type(transforms[0]) is type(transforms[1])
    assert_same_start(copied, model, given)
