"""Columns of group effects whose scales are monitored, and variables that are not monitored."""

import numpy as np
import pymc as pm
import pytest

from pymc_geodesic.densities.effect_residuals import EffectResiduals, other_variable_scales
from pymc_geodesic.densities.variables import manifold_variables

G = 7
GROUP = np.arange(40) % G


def of_columns():
    return pm.Normal("u", 0.3, pm.HalfNormal("tau", shape=2), shape=(G, 2)).T


def of_rows():
    return pm.Normal("u", 0.3, pm.HalfNormal("tau", shape=2)[:, None], shape=(2, G))


def correlated():
    tau = pm.HalfNormal("tau", shape=2)
    chol = tau[:, None] * np.array([[1.0, 0.0], [0.6, 0.8]])
    return pm.MvNormal("u", 0.3, chol=chol, shape=(G, 2)).T


def three_axes():
    return pm.Normal("u", 0.3, pm.HalfNormal("tau", shape=2)[:, None, None], shape=(2, G, 1))[
        ..., 0
    ]


FORMS = {
    of_columns: ["u[:, 0]", "u[:, 1]"],
    of_rows: ["u[0, :]", "u[1, :]"],
    correlated: ["u[:, 0]", "u[:, 1]"],
    three_axes: ["u[0, :, 0]", "u[1, :, 0]"],
}


def model_of(form):
    with pm.Model() as model:
        effects = form()
        pm.Normal("y", effects[0][GROUP] + effects[1][GROUP], observed=np.zeros(len(GROUP)))
    return model


def variables_of(model):
    return manifold_variables(model, None, None)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_columns_have_one_scale_each(form):
    model = model_of(form)
    residuals = EffectResiduals(model, variables_of(model))
    assert residuals.columns == FORMS[form]
    assert other_variable_scales(model, variables_of(model)) == []
    point = {name: np.asarray(x) for name, x in model.initial_point(0).items()}
    point["u"] = np.random.default_rng(1).normal(size=point["u"].shape)
    point["tau_log__"] = np.log([0.5, 2.0])
    found = residuals(point)
    by_group = np.moveaxis(point["u"], point["u"].shape.index(G), 0).reshape(G, 2)
    for k, (residual, sd) in enumerate(found):
        np.testing.assert_allclose(residual, by_group[:, k] - 0.3)
        np.testing.assert_allclose(sd, [0.5, 2.0][k])


def test_effects_that_sum_to_zero():
    with pm.Model() as model:
        u = pm.ZeroSumNormal("u", pm.HalfNormal("tau"), shape=G)
        pm.Normal("y", u[GROUP], observed=np.zeros(len(GROUP)))
    residuals = EffectResiduals(model, variables_of(model))
    assert residuals.columns == ["u"]
    point = {"tau_log__": np.array(np.log(3.0)), "u_zerosum__": np.arange(G - 1.0)}
    ((residual, sd),) = residuals(point)
    np.testing.assert_allclose(residual, np.arange(G - 1.0))
    np.testing.assert_allclose(sd, 3.0)


def laplace():
    return pm.Laplace("other", 0.0, pm.HalfNormal("scale"), shape=G)


def single():
    return pm.Normal("other", 0.0, pm.HalfNormal("scale")) + np.zeros(G)


def gaussian_process():
    return pm.MvNormal("other", np.zeros(G), pm.HalfNormal("scale") * np.eye(G))


@pytest.mark.parametrize("form", [laplace, single, gaussian_process])
def test_other_variables_with_a_scale(form):
    with pm.Model() as model:
        effects = pm.Normal("u", 0.0, pm.HalfNormal("tau"), shape=G) + form()
        pm.Normal("y", effects[GROUP], observed=np.zeros(len(GROUP)))
    assert EffectResiduals(model, variables_of(model)).columns == ["u"]
    assert other_variable_scales(model, variables_of(model)) == ["other"]


def test_a_variable_mean_is_no_scale():
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("b", pm.Normal("mean"), 2.0, shape=3).sum(), observed=[1.0])
    assert other_variable_scales(model, variables_of(model)) == []
