"""Detection of terms that are not sums over rows."""

import time

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_geodesic as pg
from pymc_geodesic.densities.log_density import build_density
from pymc_geodesic.densities.row_density import RowDensity, check_row_sums, find_averaging_terms
from pymc_geodesic.densities.variables import manifold_variables
from pymc_geodesic.minibatches.from_arguments import MinibatchArguments, minibatch_source
from tests.grids import cross, slow

N, N_FEATURES, BATCH = 300, 3, 10


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(N, N_FEATURES))
    return X, X @ [1.0, -1.0, 0.5] + rng.normal(size=N)


def normal(value, mean):
    return pm.logp(pm.Normal.dist(mean, 1.0), value)


def mean_over_rows(X, y, w):
    pm.Potential("term", -pt.mean((y - X @ w) ** 2))


def prior_inside(X, y, w):
    prior = pm.logp(pm.Normal.dist(0.0, 10.0), w).sum()
    pm.CustomDist("term", X @ w, prior, logp=lambda v, m, p: normal(v, m).sum() + p, observed=y)


def mean_in_a_distribution(X, y, w):
    pm.CustomDist("term", X @ w, logp=lambda v, m: N * normal(v, m).mean(), observed=y)


def time_series(X, y, w):
    first = pm.Normal.dist(0.0, 1.0)
    pm.AR("term", w[:1], 1.0, init_dist=first, observed=y)
    pm.Potential("others", X @ w)


def standardised_by_its_rows(X, y, w):
    pm.Normal("term", ((X - X.mean(0)) / X.std(0)) @ w, 1.0, observed=y)


def one_vector_of_all_rows(X, y, w):
    covariance = pt.eye(y.shape[0]) + 0.5
    pm.Potential("term", pm.logp(pm.MvNormal.dist(X @ w, covariance), y))


def groups_by_position(X, y, w):
    """For rows that are sorted by group."""
    pm.Normal("term", (X[:, 0].reshape((2, -1)) * w[:2, None]).flatten(), 1.0, observed=y)


def change_in_the_middle(X, y, w):
    n = y.shape[0]
    pm.Normal("term", pt.switch(pt.arange(n) < n / 2, w[0], w[1]) * X[:, 0], 1.0, observed=y)


def scaled_by_a_rare_maximum(X, y, w):
    outlier = 1.0 + 4.0 * pt.ge(y, np.max(y.get_value()))
    pm.Normal("term", outlier / outlier.max() * w[0], X[:, 1] ** 2 + 1.0, observed=y)


NO_SUMS = [
    groups_by_position,
    change_in_the_middle,
    scaled_by_a_rare_maximum,
    mean_over_rows,
    prior_inside,
    mean_in_a_distribution,
    time_series,
    standardised_by_its_rows,
    one_vector_of_all_rows,
]


def regression(X, y, w):
    pm.Normal("term", X @ w, 1.0, observed=y)


def sum_in_a_potential(X, y, w):
    pm.Potential("term", -pt.sum(pt.abs(y - X @ w)))


def hinge(X, y, w):
    loss = lambda v, s: -pt.maximum(0.0, 1.0 - pt.sign(v) * s)  # noqa: E731
    pm.CustomDist("term", X @ w, logp=loss, observed=y)


def sum_in_a_distribution(X, y, w):
    pm.CustomDist("term", X @ w, logp=lambda v, m: normal(v, m).sum(), observed=y)


def mixture(X, y, w):
    p = pm.Dirichlet("p", np.ones(3))
    pm.NormalMixture("term", p, w, 1.0, observed=y)
    pm.MvNormal("X_obs", w, np.eye(N_FEATURES), observed=X)


def censored(X, y, w):
    pm.Censored("term", pm.Normal.dist(X @ w, 1.0), lower=-1.0, upper=1.0, observed=y.clip(-1, 1))


def part_of_the_prior_in_every_row(X, y, w):
    part = -0.5 * (w**2).sum() / N
    pm.CustomDist("term", X @ w, part, logp=lambda v, m, p: normal(v, m) + p, observed=y)


def directions(X, y, w):
    mu = pg.UniformSphere("mu", shape=N_FEATURES)
    pm.Potential("term", y * (X @ mu) * w[0])


SUMS = [
    regression,
    sum_in_a_potential,
    hinge,
    sum_in_a_distribution,
    mixture,
    censored,
    part_of_the_prior_in_every_row,
    directions,
]


def model_of(build, table):
    with pm.Model() as model:
        X, y = (pm.Data(name, array) for name, array in zip("Xy", table, strict=True))
        build(X, y, pm.Normal("w", 0.0, 1.0, shape=N_FEATURES))
    return model


def check(model, batch_size=BATCH, **arguments):
    variables = manifold_variables(model, None)
    rows = MinibatchArguments(batch_size=batch_size, minibatch=["X", "y"], **arguments)
    source = minibatch_source(model, rows)
    density = build_density(model, variables, source.row_inputs())
    start = time.process_time()
    check_row_sums(model, variables, density, source)
    return time.process_time() - start


@pytest.mark.parametrize("build", NO_SUMS, ids=lambda build: build.__name__)
def test_terms_that_are_not_sums_raise(table, build):
    with pytest.raises(
        ValueError, match=r"log-density of 'term' is not a sum over the rows of \['X'"
    ):
        check(model_of(build, table))


@pytest.mark.parametrize("build", SUMS, ids=lambda build: build.__name__)
def test_sums_over_rows_are_accepted(table, build):
    assert check(model_of(build, table)) > 0.0


N_GROUPS, GROUP_ROWS = 3_000, 5


@pytest.fixture(scope="module")
def groups():
    """Covariates that vary between and within groups; consecutive and scattered groups."""
    rng = np.random.default_rng(2)
    group = np.repeat(np.arange(N_GROUPS), GROUP_ROWS)
    X = rng.normal(size=N_GROUPS)[group] + rng.normal(size=group.size)
    return (
        {"consecutive": group, "scattered": rng.permutation(group)},
        X,
        X + rng.normal(size=X.size),
    )


def group_mean(group, X, y, w):
    sums = pt.inc_subtensor(pt.zeros(N_GROUPS)[group], X)
    counts = pt.inc_subtensor(pt.zeros(N_GROUPS)[group], 1.0)
    pm.Normal("term", w[0] * X + w[1] * (sums / counts)[group], 1.0, observed=y)


def deviation_from_group_mean(group, X, y, w):
    """A Mundlak term, and effects of groups."""
    same = pt.eq(group[:, None], group[None, :])
    mean = (same * X).sum(axis=1) / same.sum(axis=1)
    effect = pm.Normal("effect", shape=N_GROUPS)
    pm.Normal("term", effect[group] + w[0] * (X - mean) + w[1] * mean, 1.0, observed=y)


def conditional_logit(group, X, y, w):
    utility = w[0] * X
    total = pt.inc_subtensor(pt.zeros(N_GROUPS)[group], pt.exp(utility))[group]
    pm.Potential("term", pt.sum(pt.gt(y, 0.0) * (utility - pt.log(total))))


def autoregression_within_groups(group, X, y, w):
    mean = w[0] * y[:-1] + w[1] * X[1:]
    pm.Potential("term", pt.sum(pt.eq(group[1:], group[:-1]) * normal(y[1:], mean)))


def mean_of_cells(group, X, y, w):
    """Cells of rows with equal values of two columns; each value occurs in many cells."""
    shape = N_GROUPS // 50, 50
    row, column = group // shape[1], group % shape[1]
    sums = pt.inc_subtensor(pt.zeros(shape)[row, column], X)
    pm.Normal("term", w[0] * sums[row, column], 1.0, observed=y)


def mean_of_consecutive_rows(group, X, y, w):
    """For numbers of rows that are multiples of five."""
    means = pt.repeat(X.reshape((-1, GROUP_ROWS)).mean(axis=1), GROUP_ROWS)
    pm.Normal("term", w[0] * X + w[1] * means, pt.exp(w[2] * group / N_GROUPS), observed=y)


def varying_intercepts(group, X, y, w):
    pm.Normal("term", pm.Normal("effect", shape=N_GROUPS)[group] + w[0] * X, 1.0, observed=y)


def nested_intercepts(group, X, y, w):
    region = pm.Data("region", np.arange(N_GROUPS) // 10)
    effect = pm.Normal("effect", shape=N_GROUPS // 10)
    pm.Normal("term", effect[region[group]] + w[0] * X, pt.exp(w[1]), observed=y)


def jump(group, X, y, w):
    """A threshold, for rows that are sorted by group."""
    pm.Normal("term", pt.switch(group > 100.0 * w[0], w[1], w[2]) * pt.gt(X, w[0]), observed=y)


def group_model(build, groups, order):
    numbers, X, y = groups
    with pm.Model() as model:
        data = [pm.Data("group", numbers[order]), pm.Data("X", X), pm.Data("y", y)]
        build(*data, pm.Normal("w", 0.0, 1.0, shape=N_FEATURES))
    return model


def step_of_groups(model, order="shuffled"):
    names = [name for name in ("group", "X", "y") if name in model.named_vars]
    arguments = {"batch_size": 100, "minibatch": names, "minibatch_order": order}
    return row_density(model, **arguments)


@pytest.mark.parametrize("order", ["consecutive", "scattered"])
@pytest.mark.parametrize(
    "build",
    [
        group_mean,
        deviation_from_group_mean,
        conditional_logit,
        mean_of_cells,
        mean_of_consecutive_rows,
    ],
    ids=lambda build: build.__name__,
)
def test_rows_that_depend_on_their_group(groups, build, order):
    with pytest.raises(
        ValueError, match=r"'term' is not a sum over the rows of \['group', 'X', 'y'\]"
    ):
        step_of_groups(group_model(build, groups, order))


@pytest.mark.parametrize("order", ["shuffled", slow("random")])
def test_rows_that_depend_on_the_previous_row(groups, order):
    model = group_model(autoregression_within_groups, groups, "consecutive")
    with pytest.raises(ValueError, match=r"two parts of consecutive rows together"):
        step_of_groups(model, order)


def test_the_group_is_named(groups):
    model = group_model(group_mean, groups, "scattered")
    with pytest.raises(ValueError, match=r"two parts of rows with equal values of 'group' toge"):
        step_of_groups(model)


@pytest.mark.parametrize("order", ["consecutive", "scattered"])
@pytest.mark.parametrize(
    "build", [varying_intercepts, nested_intercepts, jump], ids=lambda build: build.__name__
)
def test_rows_of_groups_that_are_independent(groups, build, order):
    step_of_groups(group_model(build, groups, order))


def test_streams_of_groups(groups):
    """Blocks of sorted rows hold whole groups."""
    numbers, X, y = groups
    data = numbers["consecutive"], X, y
    blocks = [tuple(a[i : i + 500] for a in data) for i in range(0, X.size, 500)]
    empty = {order: np.zeros(1, dtype=int) for order in numbers}, np.zeros(1), np.zeros(1)
    for batch_size in (None, 100):
        stream = {"batches": blocks, "total_size": X.size, "batch_size": batch_size}
        names = ["group", "X", "y"]
        with pytest.raises(ValueError, match="'term' is not a sum over the rows"):
            row_density(group_model(group_mean, empty, "scattered"), minibatch=names, **stream)
        row_density(group_model(varying_intercepts, empty, "scattered"), minibatch=names, **stream)


def test_streams(table):
    """Placeholders of zeros are uninformative; the check uses the rows of the first block."""
    batches = [tuple(array[i : i + 50] for array in table) for i in range(0, N, 50)]
    zeros = np.zeros((1, N_FEATURES)), np.zeros(1)
    for batch_size in (None, BATCH):
        stream = {"batches": batches, "total_size": N, "batch_size": batch_size}
        check(model_of(regression, zeros), **stream)
        with pytest.raises(ValueError, match="'term' is not a sum over the rows"):
            check(model_of(mean_over_rows, zeros), **stream)


@pytest.mark.parametrize("batch_size", [slow(1), BATCH])
def test_steps_raise(table, batch_size):
    arguments = {"batch_size": batch_size, "minibatch": ["X", "y"]}
    with model_of(prior_inside, table):
        for step in (pg.SGGMC, pg.gSGNHT, pg.SGLD, pg.SSGNHT):
            with pytest.raises(ValueError, match="'term' is not a sum over the rows"):
                step(**arguments, compile_kwargs={"mode": "FAST_COMPILE"})
    with model_of(regression, table):
        pg.SGLD(**arguments, compile_kwargs={"mode": "FAST_COMPILE"})


@pytest.mark.parametrize(("is_sum", "batch_size"), cross([True, False], [BATCH, 1]))
def test_rows_of_pymc_minibatch(table, is_sum, batch_size):
    """Which ``total_size`` has scaled already."""

    def logp(value, mean):
        return normal(value, mean) if is_sum else normal(value, mean) / value.shape[0]

    with pm.Model() as model:
        X, y = pm.Minibatch(*table, batch_size=batch_size)
        w = pm.Normal("w", shape=N_FEATURES)
        pm.CustomDist("term", X @ w, logp=logp, observed=y, total_size=N)
    if is_sum:
        pg.SGLD(model=model, compile_kwargs={"mode": "FAST_COMPILE"})
        return
    with pytest.raises(ValueError, match="'term' is not a sum over the rows"):
        pg.SGLD(model=model, compile_kwargs={"mode": "FAST_COMPILE"})


def test_impossible_rows_give_no_warnings(recwarn):
    # with unscaled covariates some rows have probability 0 far from the posterior
    covariate = 1e5 + np.arange(20.0)
    with pm.Model():
        x, y = pm.Data("x", covariate), pm.Data("y", np.tile([0.0, 1.0], 10))
        slope = pm.Normal("slope", initval=5.0)
        pm.Bernoulli("seen", p=pm.math.sigmoid(slope * x), observed=y)
        pg.SGGMC(batch_size=5, minibatch=["x", "y"], compile_kwargs={"mode": "FAST_COMPILE"})
    assert not [w for w in recwarn if issubclass(w.category, RuntimeWarning)]


def row_density(model, batch_size=BATCH, **arguments):
    rows = MinibatchArguments(batch_size=batch_size, **arguments)
    return RowDensity(model, manifold_variables(model, None), minibatch_source(model, rows))


@pytest.mark.parametrize("container", [lambda y: y, lambda y: pm.Data("y", y)])
def test_a_minibatch_of_all_rows_needs_all_names_too(container):
    """Its rows are in another order than those of unnamed data."""
    x = np.arange(40.0)
    with pm.Model() as model:
        slope = pm.Normal("slope")
        pm.Normal("seen", slope * pm.Data("x", x), observed=container(2.0 * x))
    with pytest.raises(ValueError, match=r"a block of rows of minibatch=\['x'\] does not match"):
        row_density(model, minibatch="x", batch_size=40)


def test_a_variable_for_each_row_needs_its_name_at_any_batch_size():
    with pm.Model() as model:
        each = pm.Normal("each", shape=40)
        pm.Normal("seen", each, observed=pm.Data("y", np.arange(40.0)))
    with pytest.raises(
        ValueError, match=r"If \['each'\] have a value for each row, name them in local="
    ):
        row_density(model, minibatch="y", batch_size=40)


def test_placeholders_of_one_row_must_be_named():
    with pm.Model() as model:
        slope = pm.Normal("slope")
        x, y = pm.Data("x", np.zeros(1)), pm.Data("y", np.zeros(1))
        pm.Normal("seen", slope * x, observed=y)
    blocks = [(np.arange(20.0),), (np.arange(20.0, 40.0),)]
    for batch_size in (None, 5):
        stream = {"batches": blocks, "total_size": 40, "batch_size": batch_size}
        with pytest.raises(ValueError, match=r"'y' has one row, .* Name it in"):
            row_density(model, minibatch="x", **stream)
    both = [(x, 2.0 * x) for (x,) in blocks]
    row_density(model, minibatch=["x", "y"], batches=both, total_size=40, batch_size=None)


def test_indexed_tables_are_not_rows():
    group = np.arange(40)[::-1].copy()
    with pm.Model() as model:
        slope = pm.Normal("slope")
        of_group, groups = pm.Data("of_group", np.arange(40.0)), pm.Data("group", group)
        pm.Normal("seen", slope * of_group[groups], observed=pm.Data("y", 2.0 * group))
    row_density(model, minibatch=["group", "y"])
    with pytest.raises(
        ValueError, match=r"exceeds the number of rows .* remove it from minibatch="
    ):
        row_density(model, minibatch=["of_group", "group", "y"])


def test_rows_of_a_minibatch_with_all_rows_of_other_data():
    x = np.arange(40.0)
    with pm.Model() as model:
        slope = pm.Normal("slope")
        rows, seen = pm.Minibatch(x, 2.0 * x, batch_size=40)
        pm.Normal("seen", slope * rows + x, observed=seen, total_size=40)
    with pytest.raises(ValueError, match=r"pm.Minibatch do not match .* together"):
        pg.SGLD(model=model, compile_kwargs={"mode": "FAST_COMPILE"})


def test_averaging_terms_that_are_zero_or_impossible_at_the_start():
    """Scaled zeros are zero, and so is a hinge loss without a margin at zero."""
    with pm.Model() as model:
        x, label = pm.Data("x", np.arange(1.0, 41.0)), pm.Data("label", np.tile([-1, 1], 20))
        w = pm.Normal("w", initval=0.0)
        pg.Hinge("seen", x * w, margin=0.0, observed=label, total_size=40)
        pm.Uniform("below", 0.0, 1e4 * pt.abs(w), observed=x, total_size=40)
    density = row_density(model, minibatch=["x", "label"])
    found = find_averaging_terms(model, density.variables, density.minibatch, density.source)
    assert found == [True, True]
