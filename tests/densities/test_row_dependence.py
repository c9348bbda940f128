"""Rows of a model: total sizes, lengths of data along other axes, and row indices."""

import warnings

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_geodesic as pg
from pymc_geodesic import SGGMC, UniformSphere
from pymc_geodesic.densities.row_density import RowDensity
from pymc_geodesic.densities.variables import manifold_variables
from pymc_geodesic.minibatches.from_arguments import (
    MinibatchArguments,
    minibatch_source,
    row_source,
)
from tests.steps.runs import INTERPRETED

ROWS = np.linspace(-1.0, 1.0, 40)


def drawn(total_size):
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("a"), observed=pm.Minibatch(ROWS, batch_size=5),
                  total_size=total_size)  # fmt: skip
    return model


def named(total_size):
    with pm.Model() as model:
        rows = pm.Data("rows", ROWS)
        pm.Normal("y", pm.Normal("a"), observed=rows, total_size=total_size)
    return model


ROUTES = [(drawn, {}), (named, {"minibatch": ["rows"], "batch_size": 5})]


@pytest.mark.parametrize(("route", "minibatches"), ROUTES)
@pytest.mark.parametrize(("total_size", "how"), [(400, "too narrow"), (5, "too wide")])
def test_wrong_total_size_warns(route, minibatches, total_size, how):
    expected = rf"total_size={total_size} of 'y' does not match the 40 rows.*{how}.*total_size=40"
    with route(total_size), pytest.warns(UserWarning, match=expected):
        pg.SGGMC(compile_kwargs=INTERPRETED, **minibatches)


@pytest.mark.parametrize(("route", "minibatches"), ROUTES)
def test_right_total_size_does_not_warn(route, minibatches):
    with route(40), warnings.catch_warnings():
        warnings.simplefilter("error")
        pg.SGGMC(compile_kwargs=INTERPRETED, **minibatches)


def test_total_size_of_streamed_rows():
    blocks = [(ROWS[:20],), (ROWS[20:],)]
    arguments = {"minibatch": ["rows"], "batches": blocks, "batch_size": 5}
    with named(80):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            pg.SGGMC(compile_kwargs=INTERPRETED, total_size=80, **arguments)
        with pytest.warns(UserWarning, match="total_size=80 of 'y' does not match the 40 rows"):
            pg.SGGMC(compile_kwargs=INTERPRETED, total_size=40, **arguments)


def test_total_size_below_the_rows_in_memory_raises():
    with pm.Model():
        rows = pm.Data("rows", np.zeros(40))
        pm.Normal("y", pm.Normal("a"), observed=rows)
        with pytest.raises(ValueError, match="total_size=10 is less than the 40 rows of 'rows'"):
            pg.SGGMC(minibatch="rows", batch_size=5, total_size=10, compile_kwargs=INTERPRETED)


@pytest.mark.parametrize("large", [-1e200, 1e160])
def test_numbers_whose_squares_overflow_raise(large):
    numbers = np.zeros(40)
    numbers[3] = large
    with pm.Model():
        rows = pm.Data("rows", numbers)
        pm.Normal("y", pm.Normal("a"), observed=rows)
        with pytest.raises(ValueError, match=r"'rows' contains 1e\+\d+, whose square overflows"):
            pg.SGGMC(minibatch="rows", batch_size=5, compile_kwargs=INTERPRETED)


X = np.random.default_rng(1).normal(size=(60, 3))
LABELS = X[:, 0]
PRIORS = {
    "normal": lambda x: pm.Normal("w", shape=x.shape[1]),
    "last axis": lambda x: pm.Normal("w", shape=x.shape[-1:]),
    "walk": lambda x: pm.GaussianRandomWalk("w", init_dist=pm.Normal.dist(), shape=x.shape[1]),
    "proportions": lambda x: pm.Dirichlet("w", pt.ones(x.shape[1])),
    "direction": lambda x: UniformSphere("w", shape=x.shape[1]),
    "scale": lambda x: pm.Normal("w", 0.0, 1.0 / pt.sqrt(x.shape[1]), shape=3),
}


def regression(prior):
    with pm.Model() as model:
        x, y = pm.Data("x", X), pm.Data("y", LABELS)
        w = prior(x)
        pm.Potential("ridge", -pt.sum(w**2) / x.shape[1])
        pm.Normal("seen", x @ w, 1.0, observed=y)
    return model


@pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS.keys())
def test_a_prior_with_the_length_of_another_axis_does_not_depend_on_rows(prior):
    model = regression(prior)
    source = row_source({"x": X, "y": LABELS}, 10, "shuffled")
    density = RowDensity(model, manifold_variables(model, None), source)
    assert [term.name for term in density.minibatch.row_terms] == ["seen"]


def test_a_prior_that_depends_on_rows_raises():
    model = regression(lambda x: pm.Normal("w", 0.0, 1.0 / x.std(axis=0), shape=x.shape[1]))
    with pytest.raises(ValueError, match="'w' is not a sum over the rows"):
        SGGMC(batch_size=10, minibatch=["x", "y"], model=model, compile_kwargs=INTERPRETED)


N_ROWS, GROUPS, BAD_ROW, BLOCK = 120, 5, 71, 40
Y = np.random.default_rng(1).normal(size=N_ROWS)


def plain(effect, group):
    return effect[group]


def from_one(effect, group):
    return pt.take(effect, group - 1 + 1, axis=0)


def of_a_matrix(effect, group):
    return pm.Normal("matrix", shape=(3, GROUPS))[pt.zeros_like(group), group] + effect[0]


def of_data(effect, group):
    return pm.Data("table", np.zeros(GROUPS))[group] + effect[0]


def indexed_rows_in_order(effect, group):
    return effect[group][pt.arange(group.shape[0])]


WAYS = [plain, from_one, of_a_matrix, of_data, indexed_rows_in_order]
NAMES = {of_a_matrix: "'matrix'", of_data: "'table'"}


def groups(bad=None):
    found = np.arange(N_ROWS) % GROUPS
    if bad is not None:
        found[BAD_ROW] = bad
    return found


def model_of(group, way=plain):
    with pm.Model() as model:
        rows, y = pm.Data("group", group), pm.Data("y", Y[: len(group)])
        sd = pm.HalfNormal("sd")
        effect = sd * pm.Normal("effect", shape=GROUPS)
        pm.Normal("obs", way(effect, rows), observed=y)
    return model


def row_density(model, **arguments):
    source = minibatch_source(model, MinibatchArguments(**arguments))
    return RowDensity(model, manifold_variables(model, None), source)


@pytest.mark.parametrize("arguments", [{"minibatch": ["group", "y"], "batch_size": 10}, {}])
@pytest.mark.parametrize("way", WAYS)
def test_rows_in_memory(way, arguments):
    row_density(model_of(groups(), way), **arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        row_density(model_of(groups(-GROUPS), way), **arguments)  # from the end, as in NumPy
    table = NAMES.get(way, "an array that is made of 'effect' and 'sd'")
    for bad in (57, GROUPS, -GROUPS - 1):
        message = f"row {BAD_ROW} of 'group' gives the index {bad} into {table}.*number the groups"
        with pytest.raises(ValueError, match=message):
            row_density(model_of(groups(bad), way), **arguments)


def test_indices_of_new_data():
    model = model_of(groups())
    density = row_density(model, minibatch=["group", "y"], batch_size=10)
    with model:
        pm.set_data({"group": groups(57)})
    with pytest.raises(ValueError, match=f"row {BAD_ROW} of 'group' gives the index 57"):
        density.check_data()


def test_indices_of_minibatch():
    with pm.Model() as model:
        group, y = pm.Minibatch(groups(57), Y, batch_size=10)
        effect = pm.Normal("effect", shape=GROUPS)
        pm.Normal("obs", effect[group], observed=y, total_size=N_ROWS)
    with pytest.raises(ValueError, match=f"row {BAD_ROW} of .* gives the index 57 into 'effect'"):
        row_density(model)


@pytest.mark.parametrize("batch_size", [10, None])
@pytest.mark.parametrize("way", [plain, from_one, of_data])
def test_indices_of_streamed_blocks(way, batch_size):
    def source_of(group):
        blocks = [(group[i : i + BLOCK], Y[i : i + BLOCK]) for i in range(0, N_ROWS, BLOCK)]
        arguments = {"minibatch": ["group", "y"], "batch_size": batch_size, "total_size": N_ROWS}
        placeholder = model_of(np.zeros(1, dtype=int), way)
        source = row_density(placeholder, batches=blocks, **arguments).source
        source.reset(0)
        return source

    good, bad = source_of(groups()), source_of(groups(57))
    assert sum(n for _, n in good.all_rows()) == N_ROWS
    with pytest.raises(ValueError, match=f"'group' in block 2, row {BAD_ROW - BLOCK} with .* 57"):
        list(bad.all_rows())
    for source in (good, bad):  # until all rows have been by
        draws = (source.next_starts(2) for _ in range(4 * N_ROWS))
        if source is good:
            list(draws)
        else:
            with pytest.raises(ValueError, match=r"the index 57 .*number the groups"):
                list(draws)


def test_a_row_of_a_shuffled_block_is_the_one_of_the_block():
    group = groups(57)
    arguments = {"minibatch": ["group", "y"], "batch_size": 10, "total_size": N_ROWS}
    model = model_of(np.zeros(1, dtype=int))
    source = row_density(model, batches=[(group, Y)], **arguments).source
    source.reset(0)
    with pytest.raises(ValueError, match=f"'group' in block 1, row {BAD_ROW} with the index 57"):
        source.next_starts(1)
