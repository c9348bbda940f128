"""Rows that are found in a model as its user wrote it."""

import numpy as np
import pymc as pm
import pytest

import pymc_geodesic as pg
from pymc_geodesic.minibatches.model_rows import find_rows

N, GROUPS = 400, 7
RNG = np.random.default_rng(3)
X = RNG.normal(size=(N, 2))
GROUP = RNG.integers(GROUPS, size=N)
Y = X @ [1.0, -0.5] + RNG.normal(size=GROUPS)[GROUP] + RNG.normal(size=N)
COUNTS = RNG.poisson(2.0, size=N)


def regression(*, containers=False, dims=False):
    """A regression on the arrays of this module, or on data containers that hold them."""
    coords = {"row": range(N), "group": range(GROUPS)} if dims else None
    with pm.Model(coords=coords) as model:
        x, group, y = X, GROUP, Y
        if containers:
            y, group, x = pm.Data("y_data", Y), pm.Data("group_data", GROUP), pm.Data("x_data", X)
        slope = pm.Normal("slope", shape=2)
        level = pm.Normal("level", **({"dims": "group"} if dims else {"shape": GROUPS}))
        mean = x @ slope + level[group]
        pm.Normal("y", mean, 1.0, observed=y, dims="row" if dims else None)
    return model


def draws(model, step, **arguments):
    with model:
        made = step(batch_size=50, **arguments)
        idata = pm.sample(
            40, tune=40, chains=1, cores=1, step=made, random_seed=1, progressbar=False,
            compute_convergence_checks=False,
        )  # fmt: skip
    return idata.posterior["slope"].values


@pytest.mark.parametrize("step", [pg.SGGMC, pg.SGLD], ids=lambda step: step.__name__)
def test_draws_are_those_of_named_containers(step):
    named = draws(regression(containers=True), step, minibatch=["y_data", "x_data", "group_data"])
    for model in (regression(), regression(containers=True), regression(dims=True)):
        np.testing.assert_allclose(draws(model, step), named, rtol=1e-8)


@pytest.mark.parametrize("minibatch", ["row", "y", ["y"], "variable"])
def test_rows_by_dimension_or_observed_variable(minibatch):
    model = regression(dims=True)
    given = model["y"] if minibatch == "variable" else minibatch
    step = pg.SGGMC(batch_size=50, minibatch=given, model=model)
    assert repr(step.rows).startswith("400 rows of y (dim 'row'): y (observed) (400,)")
    assert {np.shape(each.data) for each in step.rows.data.values()} == {(N,), (N, 2)}


def test_rows_are_logged(caplog):
    with caplog.at_level("INFO", logger="pymc"):
        pg.SGGMC(batch_size=50, model=regression())
    assert "SGGMC: minibatches of 50 of 400 rows of y: y (observed) (400,)" in caplog.text


def test_containers_keep_their_names_and_follow_set_data():
    model = regression(containers=True)
    step = pg.SGGMC(batch_size=50, model=model)
    assert set(step.rows.data) == {"y_data", "x_data", "group_data"}
    assert step.model is model


def test_arrays_of_a_prior_are_no_rows():
    with pm.Model() as model:
        levels = pm.Normal("levels", np.linspace(-1, 1, N), 1.0)  # as long as the data
        pm.Normal("y", levels[np.arange(N)], 1.0, observed=Y)
    assert [each.shape for each in map(_value, find_rows(model).data.values())] == [(N,), (N,)]


def test_a_container_with_another_dimension_is_no_row():
    with pm.Model(coords={"row": range(N), "group": range(N)}) as model:
        offset = pm.Data("offset", np.zeros(N), dims="group")
        pm.Normal("y", pm.Normal("mean") + offset.sum(), 1.0, observed=Y, dims="row")
    assert list(find_rows(model).data) == ["y (observed)"]


def test_observations_of_two_lengths():
    with pm.Model() as model:
        mean = pm.Normal("mean")
        pm.Normal("y", mean, 1.0, observed=Y)
        pm.Normal("few", mean, 1.0, observed=Y[:30])
    with pytest.raises(ValueError, match=r"different rows: 'y' has 400, 'few' has 30\. Name the"):
        pg.SGGMC(batch_size=10, model=model)
    step = pg.SGGMC(batch_size=50, minibatch="y", model=model)
    assert list(step.rows.data) == ["y (observed)"]


def test_two_observations_of_the_same_rows():
    with pm.Model() as model:
        mean = pm.Normal("mean")
        pm.Normal("y", mean, 1.0, observed=Y)
        pm.Poisson("count", pm.math.exp(mean), observed=COUNTS)
    step = pg.SGGMC(batch_size=50, model=model)
    assert step.rows.observed == ("y", "count")


def test_gradient_over_all_minibatches_is_that_of_the_model():
    model = regression()
    step = pg.SGGMC(batch_size=50, step_size=0.01, friction=1.0, model=model)
    estimate, position = step.estimator, np.linspace(-1.0, 1.0, 2 + GROUPS)
    estimate.reset(0)
    minibatches, _ = estimate.prepare(position, N // 50, np.zeros(2, np.uint64), tune=False)
    mean = np.mean([estimate.gradient_at(position, int(each)) for each in minibatches], axis=0)
    exact = model.compile_dlogp()({"slope": position[:2], "level": position[2:]})
    np.testing.assert_allclose(mean, exact, rtol=1e-8)


def test_local_variables_by_dimension():
    with pm.Model(coords={"row": range(N)}) as model:
        scale = pm.HalfNormal("scale")
        level = pm.Normal("level", 0.0, scale, dims="row")
        pm.Normal("y", level, 1.0, observed=Y, dims="row")
    step = pg.SGGMC(batch_size=50, local="level", model=model)
    assert [variable.name for variable in step.local] == ["level"]


@pytest.mark.parametrize("kind", ["none observed", "potential", "scalar"])
def test_models_without_rows(kind):
    with pm.Model() as model:
        mean = pm.Normal("mean")
        if kind == "potential":
            pm.Potential("y", pm.logp(pm.Normal.dist(mean, 1.0), Y))
        if kind == "scalar":
            pm.Normal("y", mean, 1.0, observed=0.3)
    with pytest.raises(ValueError, match="no observed variable with more than one value"):
        pg.SGGMC(batch_size=10, model=model)


def test_observations_without_data_of_their_length():
    with pm.Model() as model:
        y = pm.Data("y_data", Y)
        pm.Normal("y", pm.Normal("slope") * y[:-1], 1.0, observed=y[1:])
    with pytest.raises(ValueError, match="no data have 399 rows, the length of the first axis"):
        pg.SGGMC(batch_size=50, model=model)


def test_rows_that_depend_on_each_other():
    with pm.Model() as model:
        mean = pm.Normal("mean")
        pm.MvNormal("y", mean * np.ones(N), np.eye(N) + 0.5, observed=Y)
    with pytest.raises(ValueError, match=r"\(400, 400\).* depend on each other cannot be divided"):
        pg.SGGMC(batch_size=50, model=model)


def test_variables_with_a_value_for_each_row():
    with pm.Model() as model:
        level = pm.Normal("level", shape=N)
        pm.Normal("y", level, 1.0, observed=Y)
    with pytest.raises(ValueError, match=r"\['level'\] may have a value for each row.*local="):
        pg.SGGMC(batch_size=50, model=model)


def test_models_that_draw_their_rows():
    with pm.Model() as model:
        rows = pm.Minibatch(Y, batch_size=10)
        pm.Normal("y", pm.Normal("mean"), 1.0, observed=rows, total_size=N)
    with pytest.raises(ValueError, match=r"draws them itself, by pm\.Minibatch"):
        pg.SGGMC(batch_size=50, model=model)


def test_mixed_names():
    with pytest.raises(ValueError, match=r"mixes \['y'\].*with \['levels'\]"):
        pg.SGGMC(batch_size=50, minibatch=["y", "levels"], model=regression())


def test_more_rows_than_there_are():
    with pytest.raises(ValueError, match="batch_size=500 does not fit the 400 rows"):
        pg.SGGMC(batch_size=500, model=regression())


def test_missing_values():
    with pm.Model() as model:
        x = np.where(np.arange(N) == 3, np.nan, X[:, 0])
        pm.Normal("y", pm.Normal("slope") * x, 1.0, observed=Y)
    with pytest.raises(ValueError, match=r"'constant 1' holds NaN; drop or impute"):
        pg.SGGMC(batch_size=50, model=model)


def test_steps_are_pickled_with_their_rows():
    with regression():
        step = pg.SGGMC(batch_size=50)
        idata = pm.sample(
            10, tune=10, chains=2, cores=2, step=step, random_seed=1, progressbar=False,
            compute_convergence_checks=False,
        )  # fmt: skip
    assert idata.posterior.sizes["chain"] == 2


def _value(variable):
    return variable.data if hasattr(variable, "data") else variable.get_value()
