"""Automatic detection of the rows of a model."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy.sparse import csr_matrix

import pymc_geodesic as pg
from pymc_geodesic.minibatches.model_rows import find_rows

pytestmark = pytest.mark.usefixtures("interpreted")

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


@pytest.mark.slow
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
        caplog.clear()
        pg.GMC(model=regression())
        assert "rows" not in caplog.text
        pg.SGGMC(model=regression())
    assert "SGGMC: gradients of all rows, since batch_size= is not set" in caplog.text


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
    with pytest.raises(ValueError, match=r"different rows: 'y' has 400, 'few' has 30\. Name those"):
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


def assert_gradient_is_exact(model):
    """Compare the mean gradient of all minibatches of an epoch with that of the model."""
    step = pg.SGGMC(batch_size=50, step_size=0.01, friction=1.0, model=model)
    estimator, rng = step.estimator, np.random.default_rng(1)
    point = {k: v + 0.1 * rng.normal(size=np.shape(v)) for k, v in model.initial_point().items()}
    position = step.packing.pack(point)
    estimator.reset(0)
    minibatches, _ = estimator.begin_draw(position, N // 50, np.zeros(2, np.uint64), tune=False)
    mean = np.mean([estimator.gradient_at(position, int(each)) for each in minibatches], axis=0)
    variables = [model[variable.name] for variable in step.variables]
    np.testing.assert_allclose(mean, model.compile_dlogp(variables)(point), rtol=1e-8)


def test_gradient_over_all_minibatches_is_that_of_the_model():
    assert_gradient_is_exact(regression())


@pytest.mark.parametrize("kind", ["constant", "container"])
def test_infinite_bounds_of_censored_observations(kind):
    upper = np.where(Y > 1.0, 1.0, np.inf)
    with pm.Model() as model:
        bound = upper if kind == "constant" else pm.Data("upper", upper)
        latent = pm.Weibull.dist(2.0, pm.math.exp(pm.Normal("mean") + X[:, 0] * pm.Normal("slope")))
        pm.Censored("y", latent, None, bound, observed=np.clip(np.abs(Y), 0.1, upper))
    assert_gradient_is_exact(model)


def test_infinite_bounds_of_censored_observations_follow_set_data():
    with pm.Model() as model:
        upper = pm.Data("upper", np.where(Y > 1.0, 1.0, np.inf))
        mean = X @ pm.Normal("slope", shape=2)
        pm.Censored("y", pm.Normal.dist(mean, 1.0), None, upper, observed=np.minimum(Y, 1.0))
    source = pg.SGGMC(batch_size=50, model=model).estimator.source
    pm.set_data({"upper": np.full(N, np.inf)}, model=model)
    source.refresh()
    assert np.isposinf(source.arrays["upper"]).all()
    pm.set_data({"upper": np.full(N, np.nan)}, model=model)
    with pytest.raises(ValueError, match="'upper' contains NaN"):
        source.refresh()


@pytest.mark.parametrize("local", ["level", "row", "variable"])
@pytest.mark.parametrize("step", [pg.GMC, pg.SGGMC], ids=lambda step: step.__name__)
def test_local_variables_by_dimension(step, local):
    with pm.Model(coords={"row": range(N)}) as model:
        scale = pm.HalfNormal("scale")
        level = pm.Normal("level", 0.0, scale, dims="row")
        pm.Normal("y", level, 1.0, observed=Y, dims="row")
    given = {} if step is pg.GMC else {"batch_size": 50}
    made = step(local=level if local == "variable" else local, model=model, **given)
    assert [variable.name for variable in made.local] == ["level"]
    assert made.rows.n_rows == N


def test_rows_of_a_potential():
    with pm.Model(coords={"row": range(N)}) as model:
        mean, level = pm.Normal("mean"), pm.Normal("level", shape=GROUPS)
        y = pm.Data("y_data", Y, dims="row")
        pm.Potential("y", pm.logp(pm.Normal.dist(mean + level[GROUP], 1.0), y))
        pm.Potential("soft constraint", -(level**2))
    for given in (None, "y"):
        rows = pg.SGGMC(batch_size=50, minibatch=given, model=model).rows
        assert rows.observed == ("y",)
        assert [each.type.ndim for each in rows.data.values()] == [1, 1]
    assert_gradient_is_exact(model)


@pytest.mark.parametrize("kind", ["constant", "container"])
def test_arrays_that_indices_select_from_are_no_rows(kind):
    of_groups, group = RNG.normal(size=N), RNG.integers(N, size=N)  # as many groups as rows
    with pm.Model() as model:
        table = pt.as_tensor(of_groups) if kind == "constant" else pm.Data("table", of_groups)
        slope = pm.Normal("slope")
        level = pm.Normal("level", slope * table, 1.0)
        pm.Normal("y", slope * table[group] + level[group], 1.0, observed=Y)
    assert len(find_rows(model).data) == 3  # observations, and twice the groups
    assert_gradient_is_exact(model)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["zeros", "mask", "HSGP", "mixture", "censored"])
def test_numbers_of_rows_in_shapes(kind):
    with pm.Model(coords={"component": range(2)}) as model:
        if kind == "zeros":
            pm.Normal("y", pt.zeros(N) + pm.Normal("mean"), 1.0, observed=Y)
        if kind == "mask":
            mean, is_positive = pm.Normal("mean", shape=2), X[:, 0] > 0
            mu = pt.set_subtensor(pt.zeros(N)[is_positive], mean[0])
            pm.Normal("y", pt.set_subtensor(mu[~is_positive], mean[1]), 1.0, observed=Y)
        if kind == "HSGP":
            cov = pm.gp.cov.ExpQuad(1, ls=pm.HalfNormal("length"))
            trend = pm.gp.HSGP(m=[4], c=2.0, cov_func=cov).prior("trend", X=X[:, :1])
            pm.Normal("y", trend, 1.0, observed=Y)
        if kind == "mixture":
            mean = pm.Normal("mean", dims="component")
            pm.NormalMixture("y", [0.3, 0.7], mean, sigma=1.0, observed=Y)
        if kind == "censored":
            latent = pm.Normal.dist(pm.Normal("mean") * X[:, 0], 1.0)
            pm.Censored("y", latent, lower=-1.0, upper=1.0, observed=np.clip(Y, -1.0, 1.0))
    assert_gradient_is_exact(model)


def test_shared_variables_follow_their_values():
    x = pytensor.shared(X[:, 0])
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("slope") * x, 1.0, observed=Y)
    step = pg.SGGMC(batch_size=50, model=model)
    assert list(step.rows.data) == ["y (observed)", "shared variable 1"]
    x.set_value(2.0 * X[:, 0])
    np.testing.assert_array_equal(step.model["shared variable 1"].get_value(), 2.0 * X[:, 0])


def test_submodels_and_initial_values():
    with pm.Model() as model:
        mean = pm.Normal("mean", initval=0.3)
        with pm.Model(name="sub"):
            slope = pm.Normal("slope", initval=0.7)
            x = pm.Data("x", X[:, 0])
            pm.Normal("y", mean + slope * x, 1.0, observed=Y)
    step = pg.SGGMC(batch_size=50, model=model)
    assert list(step.rows.data) == ["sub::y (observed)", "sub::x"]
    assert step.model.initial_point() == {"mean": 0.3, "sub::slope": 0.7}
    assert_gradient_is_exact(model)


def test_draws_follow_set_data():
    model = regression(containers=True)
    with model:
        step = pg.SGGMC(batch_size=50)
        pm.set_data({"y_data": Y + 100.0})
        idata = pm.sample(
            100, tune=200, chains=1, cores=1, step=step, random_seed=1, progressbar=False,
            compute_convergence_checks=False,
        )  # fmt: skip
    assert abs(idata.posterior["level"].mean() - 100.0) < 5.0


@pytest.mark.slow
def test_chains_of_constants_are_resumed(tmp_path):
    arguments = {
        "tune": 20, "chains": 1, "cores": 1, "random_seed": 1, "progressbar": False,
        "compute_convergence_checks": False,
    }  # fmt: skip
    with regression() as model:
        whole = pm.sample(30, step=pg.SGGMC(batch_size=50), **arguments).posterior
        trace = pg.CheckpointTrace(tmp_path / "run")
        pm.sample(10, step=pg.SGGMC(batch_size=50), trace=trace, **arguments)
    resumed = pg.resume(tmp_path / "run", model, draws=30, progressbar=False).posterior
    np.testing.assert_array_equal(resumed["slope"].values[:, :10], whole["slope"].values[:, :10])
    assert resumed.sizes["draw"] == 30


@pytest.mark.parametrize("var_names", [None, ["slope"]], ids=["all", "selected"])
def test_memory_of_deterministics_is_logged(caplog, monkeypatch, var_names):
    monkeypatch.setattr("pymc_geodesic.steps.checks.MAX_DRAW_BYTES", 1e4)
    with pm.Model(), caplog.at_level("WARNING", logger="pymc"):
        slope, x = pm.Normal("slope"), pm.Data("x", X[:, 0])
        pm.Normal("y", pm.Deterministic("mean", slope * x), 1.0, observed=Y)
        pm.sample(
            10, tune=10, chains=1, cores=1, step=pg.SGGMC(batch_size=50), progressbar=False,
            compute_convergence_checks=False, var_names=var_names,
        )  # fmt: skip
    found = [each for each in caplog.messages if "GB of memory" in each]
    assert len(found) == (var_names is None)
    assert all(each.startswith("10 draws of ['mean'] need") for each in found)


# --- mistakes ------------------------------------------------------------------------------------


def _nothing_observed(mean):
    pm.Deterministic("twice", 2.0 * mean)


def _scalar_observed(mean):
    pm.Normal("y", mean, 1.0, observed=0.3)


def _summed_potential(mean):
    pm.Potential("y", pm.logp(pm.Normal.dist(mean, 1.0), Y).sum())


def _potentials_of_two_lengths(mean):
    for name, y in (("died", Y[:300]), ("lived", Y[300:])):
        pm.Potential(name, pm.logp(pm.Normal.dist(mean, 1.0), y))


def _masked(mean):
    y = np.ma.masked_array(Y, mask=np.arange(N) < 3)
    with pytest.warns(Warning, match="[Ii]mput"):
        pm.Normal("y", mean * X[:, 0], 1.0, observed=y)


def _leading_axis(mean):
    pm.Normal("y", mean * X[None, :, 0], 1.0, observed=Y[None])


def _rows_last(mean):
    pm.Normal("y", mean * X.T, 1.0, observed=X.T)


def _covariates_in_rows(mean):
    pm.Normal("y", pt.dot(mean * np.ones(2), X.T), 1.0, observed=Y)


def _hidden_in_logp(mean):
    pm.CustomDist("y", mean, logp=lambda y, m: -((y - m * X[:, 0]) ** 2), observed=Y, shape=N)


def _discrete_labels(mean):
    label = pm.Bernoulli("label", 0.5, shape=N)
    pm.Normal("y", mean * label, 1.0, observed=Y)


def _selection_of_rows(mean):
    pm.Normal("y", (mean * pt.as_tensor(X[:, 0]))[: N // 2], 1.0, observed=Y[: N // 2])


def _time_series(mean):
    pm.AR("y", mean, sigma=1.0, init_dist=pm.Normal.dist(), observed=Y)


def _random_walk(mean):
    trend = pm.GaussianRandomWalk("trend", init_dist=pm.Normal.dist(), steps=N - 1)
    pm.Normal("y", mean + trend, 1.0, observed=Y)


def _standardized(mean):
    x = pm.Data("x", X[:, 0])
    pm.Normal("y", mean * (x - x.mean()), 1.0, observed=Y)


def _adstock(mean):
    carried = sum(mean**lag * pt.roll(pt.as_tensor(X[:, 0]), lag) for lag in range(4))
    pm.Normal("y", carried, 1.0, observed=Y)


def _infinite(mean):
    pm.Normal("y", mean * np.where(X[:, 0] > 0.0, X[:, 0], np.inf), 1.0, observed=Y)


def _group_out_of_bounds(mean):
    level = pm.Normal("level", shape=GROUPS)
    pm.Normal("y", mean + level[GROUP + 1], 1.0, observed=Y)


MISTAKES = {
    _nothing_observed: "no observed variable with more than one value and no potential",
    _scalar_observed: "no observed variable with more than one value and no potential",
    _summed_potential: r"one value for each row, without \.sum\(\)",
    _potentials_of_two_lengths: "the potentials have different rows: 'died' has 300, 'lived' has 1",
    _masked: "'y' contain NaN or are masked, and PyMC imputes .* Drop these rows",
    _leading_axis: r"the 1 rows of .* Rows are the first axis of the shape \(1, 400\): transpose",
    _rows_last: r"the 2 rows of .* Rows are the first axis of the shape \(2, 400\): transpose it",
    _covariates_in_rows: r"shape \(2, 400\) has the rows along its last axis: transpose it",
    _hidden_in_logp: r"inside the logp of a pm\.CustomDist are not found: pass them as param",
    _discrete_labels: r"\['label'\] are discrete with a value for each row, marginalize",
    _selection_of_rows: "has 400 rows: if the 200 observations are a subset of them, select",
    _time_series: "'y' is not a sum over the rows .* use all rows",
    _random_walk: "as in a Gaussian process or a time series, .* use all rows",
    _standardized: "'y' is not a sum over the rows .* without a mean over rows",
    _adstock: "'y' is not a sum over the rows .* such as those of a time series",
    _infinite: r"contains infinity: drop those rows first",
    _group_out_of_bounds: r"gives the index 7 into 'level', which has the 7 entries 0 to 6; number",
}


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.__name__[1:])
def test_messages_of_mistakes_name_the_remedy(mistake):
    with pm.Model() as model:
        mistake(pm.Normal("mean"))
    with pytest.raises(ValueError, match=MISTAKES[mistake]):
        pg.SGGMC(batch_size=50, model=model)


@pytest.mark.parametrize("step", [pg.GMC, pg.SGGMC], ids=lambda step: step.__name__)
def test_indices_of_constants(step):
    def make(group):
        with pm.Model() as model:
            level = pm.Normal("level", shape=GROUPS)
            pm.Normal("y", level[group], 1.0, observed=Y)
        return step(model=model, **arguments)

    arguments = {"batch_size": 50} if step is pg.SGGMC else {}
    with pytest.raises(ValueError, match=r"'(constant|array) \d' gives the index 7 into 'level'"):
        make(GROUP + 1)
    make(GROUP - GROUPS)  # counts from the end, on purpose
    with_missing = np.where(np.arange(N) == 3, -1, GROUP)
    with pytest.warns(UserWarning, match=r"row 3 of '.* 1' is a negative index.* of 'level'"):
        make(with_missing)
    with pm.Model() as model:
        level, group = pm.Normal("level", shape=GROUPS), pm.Data("group", GROUP)
        pm.Normal("y", level[group], 1.0, observed=Y)
    made = step(model=model, **arguments)
    pm.set_data({"group": with_missing}, model=model)
    with pytest.warns(UserWarning, match="row 3 of 'group' is a negative index.* of 'level'"):
        made.estimator.refresh_data()


def test_observations_without_data_of_their_length():
    with pm.Model() as model:
        y = pm.Data("y_data", Y)
        pm.Normal("y", pm.Normal("slope") * y[:-1], 1.0, observed=y[1:])
    with pytest.raises(ValueError, match="no data have 399 rows, the length of the first axis"):
        pg.SGGMC(batch_size=50, model=model)


def test_sparse_matrices_need_a_container():
    with pm.Model() as model:
        w = pm.Normal("w", shape=(2, 1))
        matrix = pytensor.sparse.as_sparse_variable(csr_matrix(X))
        pm.Normal("y", pytensor.sparse.structured_dot(matrix, w)[:, 0], 1.0, observed=Y)
    with pytest.raises(ValueError, match=r"'constant 1' is a SciPy matrix, .*SparseData\(name"):
        find_rows(model)


def test_rows_that_depend_on_each_other():
    with pm.Model() as model:
        mean = pm.Normal("mean")
        pm.MvNormal("y", mean * np.ones(N), np.eye(N) + 0.5, observed=Y)
    with pytest.raises(
        ValueError, match=r"\(400, 400\).* Correlated observations cannot be divided"
    ):
        pg.SGGMC(batch_size=50, model=model)


def test_variables_with_a_value_for_each_row():
    with pm.Model() as model:
        level = pm.Normal("level", shape=N)
        pm.Normal("y", level, 1.0, observed=Y)
    with pytest.raises(
        ValueError, match=r"If \['level'\] have a value for each row, name them in local="
    ):
        pg.SGGMC(batch_size=50, model=model)


def test_models_with_pymc_minibatch():
    with pm.Model() as model:
        rows = pm.Minibatch(Y, batch_size=10)
        pm.Normal("y", pm.Normal("mean"), 1.0, observed=rows, total_size=N)
    with pytest.raises(ValueError, match=r"no effect on a model with pm\.Minibatch"):
        pg.SGGMC(batch_size=50, model=model)


def test_mixed_names():
    with pytest.raises(ValueError, match=r"mixes \['y'\].*with \['levels'\]"):
        pg.SGGMC(batch_size=50, minibatch=["y", "levels"], model=regression())


def test_batch_size_exceeds_the_rows():
    with pytest.raises(ValueError, match="batch_size=500 exceeds the 400 rows"):
        pg.SGGMC(batch_size=500, model=regression())


def test_missing_values():
    with pm.Model() as model:
        x = np.where(np.arange(N) == 3, np.nan, X[:, 0])
        pm.Normal("y", pm.Normal("slope") * x, 1.0, observed=Y)
    with pytest.raises(ValueError, match=r"'constant 1' contains NaN: drop or impute"):
        pg.SGGMC(batch_size=50, model=model)


@pytest.mark.slow
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
