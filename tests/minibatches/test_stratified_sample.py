"""Samples of rows that represent rare levels: unbiased sums, and posteriors known exactly."""

import numpy as np
import pymc as pm
import pytest
from scipy import sparse

import pymc_geodesic as pg
from pymc_geodesic.minibatches.stratified_sample import (
    ROWS_PER_LEVEL,
    largest_shares,
    shares_of_entries,
    shares_of_levels,
    stratified_sample,
)
from tests.grids import by_default

N_ROWS, N_LEVELS = 20_000, 70


def zipf_levels(exponent: float, n_rows: int = N_ROWS, n_levels: int = N_LEVELS) -> np.ndarray:
    rng = np.random.default_rng(5)
    weights = np.arange(1.0, n_levels + 1.0) ** -exponent
    levels = rng.choice(n_levels, size=n_rows, p=weights / weights.sum())
    levels[:n_levels] = np.arange(n_levels)
    return rng.permutation(levels)


@pytest.mark.parametrize("exponent", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("n", [3_500, 7_000])
def test_every_level_is_represented_and_weighted(exponent, n):
    levels = zipf_levels(exponent)
    counts = np.bincount(levels, minlength=N_LEVELS)
    sample = stratified_sample({"level": levels}, n, shares_of_levels(levels))
    assert sample.counts @ sample.weights == pytest.approx(N_ROWS)
    assert sample.counts.sum() <= 2 * n + len(sample.counts)
    weights = np.repeat(sample.weights, sample.counts)
    found = np.bincount(sample.arrays["level"], weights, N_LEVELS)
    assert found.min() > 0.0
    is_complete = counts <= ROWS_PER_LEVEL
    np.testing.assert_array_equal(found[is_complete], counts[is_complete])
    assert np.max(np.abs(found / counts - 1.0)) < 5.0 / np.sqrt(ROWS_PER_LEVEL)


@pytest.mark.parametrize("rows_per_level", [1, 2, 10])
def test_sample_of_equally_rare_levels_is_bounded(rows_per_level):
    """Levels of a balanced panel are all in one stratum, which is larger than the sample."""
    levels = np.arange(N_ROWS) // rows_per_level
    sample = stratified_sample({"level": levels}, 1_000, shares_of_levels(levels))
    assert sample.counts.sum() <= 2 * 1_000 + 1
    assert sample.counts @ sample.weights == pytest.approx(N_ROWS)


def test_no_strata_where_all_levels_are_frequent():
    rng = np.random.default_rng(1)
    arrays = {"level": rng.integers(8, size=N_ROWS), "x": rng.normal(size=(N_ROWS, 3))}
    shares = {"level": shares_of_levels(arrays["level"])}
    shares = largest_shares(arrays, N_ROWS, 0.0, shares)
    assert stratified_sample(arrays, 5_000, shares) is None


@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_rare_indicators_in_dense_columns(shift):
    """Of any location and scale, next to a column of normal numbers and a constant one."""
    rng = np.random.default_rng(1)
    columns = np.column_stack([rng.normal(size=N_ROWS), np.full(N_ROWS, 1.0), np.zeros(N_ROWS)])
    rare = rng.choice(N_ROWS, size=7, replace=False)
    columns[rare, 2] = 30.0
    columns += shift
    shares = largest_shares({"X": columns}, N_ROWS, 0.0, {})
    sample = stratified_sample({"X": columns}, 1_000, shares)
    in_sample = sample.arrays["X"][:, 2] > shift + 15.0
    assert in_sample.sum() == 7
    np.testing.assert_array_equal(np.repeat(sample.weights, sample.counts)[in_sample], 1.0)


def test_shares_of_sparse_rows():
    matrix = sparse.random_array((300, 12), density=0.15, rng=np.random.default_rng(3)).tocsr()
    rows = np.column_stack([matrix.indptr[:-1], matrix.indptr[1:]])
    n_entries = np.bincount(matrix.indices, minlength=12)
    filled = matrix.toarray() != 0.0
    expected = np.max(np.where(filled, 1.0 / n_entries, 0.0), axis=1)
    np.testing.assert_allclose(shares_of_entries(rows, matrix.indices), expected)


def posterior_of_effects(kind: str) -> tuple[pm.Model, np.ndarray, list[str]]:
    """Model of normal effects of levels, numbers of their rows, and containers."""
    levels = zipf_levels(2.0)
    y = np.random.default_rng(2).normal(size=N_ROWS)
    counts = np.bincount(levels)
    one_hot = sparse.csr_array((np.ones(N_ROWS), levels, np.arange(N_ROWS + 1)))
    with pm.Model() as model:
        effect = pm.Normal("effect", 0.0, 10.0, shape=N_LEVELS)
        if kind == "codes":
            mean = effect[pm.Data("X", levels)]
        elif kind == "interaction":
            mean = effect[7 * pm.Data("X", levels // 7) + pm.Data("Z", levels % 7)]
        else:
            X = pm.Data("X", one_hot.toarray()) if kind == "dense" else pg.SparseData("X", one_hot)
            mean = X @ effect
        pm.Normal("outcome", mean, 1.0, observed=pm.Data("y", y))
    names = ["X", "Z", "y"] if kind == "interaction" else ["X", "y"]
    return model, counts, names


@pytest.mark.parametrize(
    "kind", by_default(["codes"], of=["codes", "interaction", "dense", "sparse"])
)
def test_scales_of_rare_levels(kind):
    """The metric has the posterior's scales, 1 / sqrt(n + 1/100), not the prior's of 10."""
    model, counts, names = posterior_of_effects(kind)
    assert counts.min() < 4
    step = pg.SGGMC(model=model, batch_size=200, minibatch=names)
    step.setup_chain(np.random.default_rng(1), 300, 1)
    point = model.initial_point(random_seed=1)
    for _ in range(151):
        point, stats = step.step(point)
    gradient = step.adaptation.gradient
    found = np.sqrt(np.diag(gradient.metric.factor @ gradient.metric.factor.T))
    assert np.abs(np.log(found * np.sqrt(counts + 0.01))).max() < 0.5
    assert gradient.is_centered
    assert stats[0]["noise_ratio"] < 0.2
