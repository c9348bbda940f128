"""Data that point beyond an array are refused by name and row; compiled code would not look."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_geodesic.densities.row_density import RowDensity
from pymc_geodesic.densities.variables import manifold_variables
from pymc_geodesic.minibatches.from_arguments import MinibatchArguments, minibatch_source

N, GROUPS, BAD_ROW, BLOCK = 120, 5, 71, 40
Y = np.random.default_rng(1).normal(size=N)


def plain(effect, group):
    return effect[group]


def from_one(effect, group):
    return pt.take(effect, group - 1 + 1, axis=0)


def of_a_matrix(effect, group):
    return pm.Normal("matrix", shape=(3, GROUPS))[pt.zeros_like(group), group] + effect[0]


def of_data(effect, group):
    return pm.Data("table", np.zeros(GROUPS))[group] + effect[0]


def beside_rows_in_order(effect, group):
    return effect[group][pt.arange(group.shape[0])]


WAYS = [plain, from_one, of_a_matrix, of_data, beside_rows_in_order]
NAMES = {of_a_matrix: "'matrix'", of_data: "'table'"}


def groups(bad=None):
    found = np.arange(N) % GROUPS
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


def build_density(model, **arguments):
    source = minibatch_source(model, MinibatchArguments(**arguments))
    return RowDensity(model, manifold_variables(model, None), source)


@pytest.mark.parametrize("arguments", [{"minibatch": ["group", "y"], "batch_size": 10}, {}])
@pytest.mark.parametrize("way", WAYS)
def test_rows_in_memory(way, arguments):
    build_density(model_of(groups(), way), **arguments)
    build_density(model_of(groups(-GROUPS), way), **arguments)  # from the end, as in NumPy
    table = NAMES.get(way, "an array that is made of 'effect' and 'sd'")
    for bad in (57, GROUPS, -GROUPS - 1):
        message = f"row {BAD_ROW} of 'group' gives the index {bad} into {table}.*number what"
        with pytest.raises(ValueError, match=message):
            build_density(model_of(groups(bad), way), **arguments)


def test_rows_that_were_exchanged():
    model = model_of(groups())
    density = build_density(model, minibatch=["group", "y"], batch_size=10)
    with model:
        pm.set_data({"group": groups(57)})
    with pytest.raises(ValueError, match=f"row {BAD_ROW} of 'group' gives the index 57"):
        density.check_data()


def test_rows_that_pymc_draws():
    with pm.Model() as model:
        group, y = pm.Minibatch(groups(57), Y, batch_size=10)
        effect = pm.Normal("effect", shape=GROUPS)
        pm.Normal("obs", effect[group], observed=y, total_size=N)
    with pytest.raises(ValueError, match=f"row {BAD_ROW} of .* gives the index 57 into 'effect'"):
        build_density(model)


@pytest.mark.parametrize("batch_size", [10, None])
@pytest.mark.parametrize("way", [plain, from_one, of_data])
def test_blocks_as_they_are_read(way, batch_size):
    def source_of(group):
        blocks = [(group[i : i + BLOCK], Y[i : i + BLOCK]) for i in range(0, N, BLOCK)]
        arguments = {"minibatch": ["group", "y"], "batch_size": batch_size, "total_size": N}
        placeholder = model_of(np.zeros(1, dtype=int), way)
        source = build_density(placeholder, batches=blocks, **arguments).source
        source.reset(0)
        return source

    good, bad = source_of(groups()), source_of(groups(57))
    assert sum(n for _, n in good.all_rows()) == N
    with pytest.raises(ValueError, match=f"'group' in block 2, row {BAD_ROW - BLOCK} with .* 57"):
        list(bad.all_rows())
    for source in (good, bad):  # until all rows have been by
        draws = (source.next_starts(2) for _ in range(4 * N))
        if source is good:
            list(draws)
        else:
            with pytest.raises(ValueError, match=r"the index 57 .*number what the rows belong to"):
                list(draws)


def test_a_row_of_a_shuffled_block_is_the_one_of_the_block():
    group = groups(57)
    arguments = {"minibatch": ["group", "y"], "batch_size": 10, "total_size": N}
    model = model_of(np.zeros(1, dtype=int))
    source = build_density(model, batches=[(group, Y)], **arguments).source
    source.reset(0)
    with pytest.raises(ValueError, match=f"'group' in block 1, row {BAD_ROW} with the index 57"):
        source.next_starts(1)
