"""Models of `pymc.dims`, sampled as the same models of plain arrays."""

import numpy as np
import pymc as pm
import pymc.dims as pmd
import pytest
from pytensor.xtensor import as_xtensor

import pymc_geodesic as pg
from pymc_geodesic.densities.named_axes import without_named_axes
from tests.grids import slow

N, GROUPS = 300, 4
RNG = np.random.default_rng(5)
X = RNG.normal(size=(N, 2))
GROUP = RNG.integers(GROUPS, size=N)
Y = X @ [1.0, -0.5] + RNG.normal(size=GROUPS)[GROUP] + RNG.normal(size=N)
COORDS = {"row": range(N), "covariate": ["a", "b"], "group": range(GROUPS)}


def plain():
    with pm.Model(coords=COORDS) as model:
        y, group, x = pm.Data("y_data", Y), pm.Data("group_data", GROUP), pm.Data("x_data", X)
        slope = pm.Normal("slope", 0.0, 1.0, dims="covariate")
        level = pm.ZeroSumNormal("level", 1.0, dims="group")
        scale = pm.HalfNormal("scale", 1.0)
        pm.Normal("y", x @ slope + level[group], scale, observed=y, dims="row")
    return model


def with_dims(*, constants=False):
    with pm.Model(coords=COORDS) as model:
        if constants:
            y, group, x = (
                as_xtensor(Y, dims=("row",)),
                as_xtensor(GROUP, dims=("row",)),
                as_xtensor(X, dims=("row", "covariate")),
            )
        else:
            y = pmd.Data("y_data", Y, dims="row")
            group = pmd.Data("group_data", GROUP, dims="row")
            x = pmd.Data("x_data", X, dims=("row", "covariate"))
        slope = pmd.Normal("slope", 0.0, 1.0, dims="covariate")
        level = pmd.ZeroSumNormal("level", core_dims="group")
        scale = pmd.HalfNormal("scale", 1.0)
        pmd.Normal("y", x.dot(slope) + level.isel(group=group), scale, observed=y, dims="row")
    return model


def sample(model, make):
    with model:
        idata = pm.sample(
            100, tune=100, chains=1, cores=1, step=make(), random_seed=1, progressbar=False,
            compute_convergence_checks=False,
        )  # fmt: skip
    return idata.posterior


@pytest.mark.slow
@pytest.mark.parametrize("constants", [slow(False), True], ids=["data", "constants"])
@pytest.mark.parametrize(
    "make", [slow(pg.GMC), lambda: pg.SGGMC(batch_size=30)], ids=["GMC", "SGGMC, rows found"]
)
def test_draws_are_those_of_the_model_of_plain_arrays(make, constants):
    expected, found = sample(plain(), make), sample(with_dims(constants=constants), make)
    for name in ("slope", "level", "scale"):
        assert found[name].dims == expected[name].dims
        np.testing.assert_allclose(found[name].mean(), expected[name].mean(), atol=0.1)
    first = {"draw": slice(3)}  # later ones differ by the order of sums
    np.testing.assert_allclose(found["slope"].isel(first), expected["slope"].isel(first), rtol=1e-6)


@pytest.mark.parametrize("variable", [pmd.Beta, pmd.Gamma, pmd.Normal], ids=lambda v: v.__name__)
def test_log_density_and_values_are_those_of_the_named_axes(variable):
    with pm.Model(coords={"group": range(3)}) as model:
        variable("x", 2.0, 3.0, dims="group")
        pmd.Dirichlet("p", as_xtensor(np.ones(3), dims=("group",)), core_dims="group")
    lowered = without_named_axes(model)
    point = {k: RNG.normal(size=np.shape(v)) for k, v in model.initial_point().items()}
    assert lowered.initial_point().keys() == point.keys()
    np.testing.assert_allclose(lowered.compile_logp()(point), model.compile_logp()(point))


@pytest.mark.slow
def test_variables_of_the_step_are_those_of_the_model():
    with with_dims() as model:
        step = pg.SGGMC([model["slope"], "scale"], batch_size=30, minibatch="row")
    assert {value.name for value in step.vars} == {"slope", "scale_log__"}
    assert set(step.vars) <= set(model.value_vars)


def test_values_follow_set_data():
    with with_dims() as model:
        lowered = without_named_axes(model)
        pm.set_data({"y_data": Y + 1.0})
    np.testing.assert_array_equal(lowered["y_data"].get_value(), Y + 1.0)


def test_transforms_along_another_axis_raise():
    with pm.Model(coords={"group": range(3), "row": range(2)}) as model:
        ones = as_xtensor(np.ones(3), dims=("group",))
        pmd.Dirichlet("p", ones, core_dims="group", dims=("group", "row"))
    with pytest.raises(ValueError, match=r"'p' has the transform SimplexTransform.*last of"):
        pg.GMC(model=model)
