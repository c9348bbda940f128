"""Dirichlet-process mixtures of categoricals: samplers against enumeration of all partitions."""

import sys

import numpy as np
import pytest
from scipy import sparse
from scipy.special import gammaln

from pymc_geodesic.mixtures import (
    collapsed_gibbs,
    dp_categorical_gibbs,
    dp_categorical_slice,
    log_predictive,
    perplexity,
)
from pymc_geodesic.mixtures.dp_categorical import Counts, Mixture
from pymc_geodesic.mixtures.dp_categorical_gibbs import CollapsedChain, Start, initialize_clusters
from pymc_geodesic.mixtures.dp_categorical_slice import SliceChain
from tests.grids import slow
from tests.mixtures.all_partitions import (
    BETA,
    COUNTS,
    NEW,
    PRIOR,
    QUIET,
    Enumeration,
    by_batches,
    log_marginal,
    run,
)
from tests.mutants import Mutant

slices = sys.modules[SliceChain.__module__]
dp_categorical_gibbs_module = sys.modules[CollapsedChain.__module__]


@pytest.fixture(scope="module")
def exact():
    return Enumeration(PRIOR)


def test_collapsed_gibbs_samples_partitions_exactly(exact):
    mixture = Mixture.from_arguments(COUNTS, BETA, PRIOR)
    found, alpha = run(CollapsedChain(mixture, np.random.default_rng(1)), 20_000, 8)
    assert np.abs(exact.z_scores(found)).max() < 5
    assert abs(by_batches(alpha, exact.alpha)) < 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "edit"),
    [
        ("_cluster_weights", ("weights[fresh] = alpha", "weights[fresh] = 1.3 * alpha")),
        slow("_cluster_weights", ("beta[tokens[t]] + repeats", "beta[tokens[t]]")),
        slow("_cluster_weights", ("beta_sum + t", "beta_sum")),
        slow("move_row", ("sign * tokens.size", "sign")),
    ],
    ids=lambda value: value[1] if isinstance(value, tuple) else None,
)
def test_mutants_of_collapsed_gibbs_are_detected(part, edit, monkeypatch):
    inner = Mutant(edit[1], getattr(collapsed_gibbs, part), edit=edit).compile()
    mutant = Mutant(edit[1], collapsed_gibbs.collapsed_rows, {part: inner}).compile()
    monkeypatch.setattr(dp_categorical_gibbs_module, "collapsed_rows", mutant)
    exact = Enumeration(1.0)
    mixture = Mixture.from_arguments(COUNTS, BETA, 1.0)
    found, _ = run(CollapsedChain(mixture, np.random.default_rng(1)), 20_000, 4)
    assert np.abs(exact.z_scores(found)).max() > 8


@pytest.mark.slow
@pytest.mark.parametrize(("batch_size", "n"), [(2, 6_000), slow(2, 12_000), slow(None, 12_000)])
def test_slice_sampling_samples_partitions_exactly(exact, batch_size, n):
    """With all rows, or two at a time; errors account for autocorrelation.

    The mutants below have errors of at least 12 standard errors after 6,000 draws.
    """
    mixture = Mixture.from_arguments(COUNTS, BETA, PRIOR)
    chain = SliceChain(mixture, np.random.default_rng(1), batch_size)
    found, alpha = run(chain, n, 4 if batch_size is None else 8)
    often = np.flatnonzero(exact.p > 0.01)
    seen = exact.indices(found)[:, None] == often
    assert len(often) > 15
    assert np.abs(by_batches(seen.astype(float), exact.p[often])).max() < 5
    assert abs(by_batches(alpha, exact.alpha)) < 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "edit"),
    [
        ("break_sticks", ("log_beta(stream, 1.0, alpha)", "log_beta(stream, 1.0, 5.0 * alpha)")),
        slow("break_sticks", ("while log_rest >= log_smallest", "while log_rest >= 1.0")),
        slow("draw_slices", ("uniform(stream)", "0.5 * uniform(stream)")),
        slow("slice_rows", ("likelihoods[:] = 1.0", "likelihoods[:] = weights[:n]")),
        slow("slice_rows", ("weights[middle] >= slices[i]", "weights[middle] >= 0.0 * slices[i]")),
    ],
    ids=lambda value: value[1] if isinstance(value, tuple) else None,
)
def test_mutants_of_the_slice_sampler_are_detected(kernel, edit, monkeypatch):
    module = sys.modules[SliceChain.__module__]
    mutant = Mutant(edit[1], getattr(slices, kernel), edit=edit).compile()
    monkeypatch.setattr(module, kernel, mutant)
    exact = Enumeration(1.0)
    chain = SliceChain(Mixture.from_arguments(COUNTS, BETA, 1.0), np.random.default_rng(1))
    found, _ = run(chain, 3_000, 8)
    assert np.abs(exact.z_scores(found)).max() > 6


@pytest.mark.slow
def test_new_rows_have_the_exact_predictive_probability(exact):
    idata = dp_categorical_gibbs(COUNTS, PRIOR, BETA, draws=8_000, thin=2, **QUIET)
    every = np.exp(log_predictive(idata, NEW, average=False).values[0])
    assert np.abs(by_batches(every[:, :3], exact.predictive[:3])).max() < 4
    np.testing.assert_allclose(every[:, 3], 1.0)  # a row without tokens
    mean = np.exp(log_predictive(idata, NEW).values)
    np.testing.assert_allclose(mean, every.mean(axis=0), rtol=1e-10)
    expected = np.exp(-np.log(mean).sum() / NEW.sum())
    assert perplexity(idata, sparse.csr_array(NEW)) == pytest.approx(expected)
    np.testing.assert_allclose(
        np.bincount(idata.posterior["n_clusters"].values[0], minlength=6)[1:] / 8_000,
        exact.n_clusters,
        atol=0.03,
    )


def test_dropped_clusters_are_predicted_by_the_prior():
    """Dropped weights count as clusters without rows."""
    idata = dp_categorical_gibbs(COUNTS, 1.0, BETA, draws=4, n_components=1, **QUIET)
    assert idata.posterior["topics"].shape == (1, 4, 1, 3)
    weight = idata.posterior["weights"].values[0, :, 0]
    topics = idata.posterior["topics"].values[0, :, 0]
    expected = weight * np.prod(topics ** NEW[1], axis=1)
    expected += (1 - weight) * np.exp(log_marginal(NEW[1]))
    with pytest.warns(UserWarning, match="of which the 1 largest were kept"):
        found = log_predictive(idata, NEW, average=False).values[0, :, 1]
    np.testing.assert_allclose(np.exp(found), expected)


def test_log_probability_is_that_of_partition_and_tokens():
    assignments = np.array([0, 0, 2, 2, 1], dtype=np.int32)
    mixture = Mixture.from_arguments(COUNTS, BETA, 1.7)
    counts = Counts.from_assignments(mixture.rows, assignments, 3).enlarged()
    expected = 3 * np.log(1.7) + gammaln(1.7) - gammaln(6.7)  # Γ(2) Γ(2) Γ(1) = 1
    expected += sum(log_marginal(COUNTS[assignments == k].sum(axis=0)) for k in range(3))
    assert counts.log_probability(1.7, BETA) == pytest.approx(expected)


@pytest.mark.parametrize("sampler", [dp_categorical_gibbs, dp_categorical_slice])
def test_many_clusters_and_long_rows(sampler):
    """More clusters than the initial capacity, and rows with probabilities below 10⁻³⁰⁰."""
    rows = np.kron(np.eye(40, dtype=int), np.full((1, 2), 150))
    idata = sampler(rows, (1.0, 1.0), 0.01, draws=20, tune=5, keep_assignments=True, **QUIET)
    assert (idata.posterior["n_clusters"] == 40).all()
    assert idata.posterior["weights"].sizes["component"] == 40
    assert len(set(idata.posterior["assignments"].values[0, -1])) == 40
    assert np.isfinite(idata.sample_stats["lp"]).all()


@pytest.mark.parametrize("sampler", [dp_categorical_gibbs, dp_categorical_slice])
def test_seeds_chains_and_coordinates(sampler):
    options = {"draws": 3, "tune": 2, "keep_assignments": True, "progressbar": False}
    names = {"rows": list("abcde"), "categories": ["x", "y", "z"]}
    runs = [
        sampler(COUNTS, random_seed=7, chains=chains, **options, **names) for chains in (2, 2, 3)
    ]
    assert runs[0].equals(runs[1])
    np.testing.assert_array_equal(
        runs[0].posterior["topics"][0, :, 0], runs[2].posterior["topics"][0, :, 0]
    )
    first, second = runs[0].posterior["alpha"].values
    assert not np.any(first == second)
    assert runs[0].posterior["topics"].coords["category"].values.tolist() == ["x", "y", "z"]
    assert runs[0].posterior["assignments"].coords["row"].values.tolist() == list("abcde")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"counts": [[0.5, 1.0]]}, "whole numbers"),
        ({"counts": [[1, 1]], "alpha": -1.0}, "alpha must be"),
        ({"counts": [[1, 1]], "alpha": (1.0, 1.0, 1.0)}, "alpha must be"),
        ({"counts": [[1, 1]], "beta": [0.1, 0.1, 0.1]}, "beta"),
        ({"counts": [[1, 1]], "draws": 0}, "draws"),
        ({"counts": [[1, 1]], "thin": 0}, "thin"),
        ({"counts": [[1, 1]], "n_components": 0}, "n_components"),
        ({"counts": [[1, 1]], "rows": ["a", "b"]}, "rows"),
    ],
)
def test_invalid_input_raises(arguments, message):
    with pytest.raises(ValueError, match=message):
        dp_categorical_gibbs(**arguments, **QUIET)


@pytest.mark.parametrize(
    ("batch_size", "message"),
    [
        (0, "batch_size must be a positive integer, got 0"),
        (2.5, "batch_size must be a positive integer"),
        (6, "batch_size=6 exceeds the 5 rows. Use batch_size <= 5"),
    ],
)
def test_invalid_batch_sizes_raise(batch_size, message):
    with pytest.raises(ValueError, match=message):
        dp_categorical_slice(COUNTS, batch_size=batch_size, **QUIET)


def test_invalid_arguments_of_predictions_raise():
    idata = dp_categorical_gibbs(COUNTS, draws=2, tune=0, n_components=1, **QUIET)
    with pytest.raises(ValueError, match="shape"):
        log_predictive(idata, [[1, 2]])
    with pytest.raises(ValueError, match="whole numbers of at least 0"):
        log_predictive(idata, [[1, 2, -1]])
    with pytest.raises(ValueError, match="no token"):
        perplexity(idata, [[0, 0, 0]])
    del idata["constant_data"]
    with pytest.raises(ValueError, match="beta"):
        log_predictive(idata, NEW)
    idata["posterior"].dataset = idata["posterior"].to_dataset().drop_vars("weights")
    with pytest.raises(ValueError, match="the posterior holds no variable 'weights'"):
        log_predictive(idata, NEW)
    with pytest.raises(ValueError, match="has no group 'posterior'"):
        log_predictive(idata.drop_nodes("posterior"), NEW)


def test_initialization_from_a_subsample_assigns_all_rows():
    """Two kinds of rows; the clusters of a subsample contain all rows after one pass."""
    rows = np.repeat([[6, 5, 0, 0], [0, 0, 5, 5]], 50, axis=0)
    mixture = Mixture.from_arguments(rows, 0.1, 1.0)
    chain = initialize_clusters(mixture, np.random.default_rng(1), Start(20, 50))
    found = chain.assignments
    assert found.min() >= 0
    assert np.mean(found[:50] == np.bincount(found[:50]).argmax()) > 0.9
    assert np.mean(found[50:] == np.bincount(found[50:]).argmax()) > 0.9
    some = np.array([1, 4, 3])
    taken = Mixture.from_arguments(COUNTS, BETA, 1.0).rows.take(some)
    expected = Mixture.from_arguments(COUNTS[some], BETA, 1.0).rows
    np.testing.assert_array_equal(taken.starts, expected.starts)
    np.testing.assert_array_equal(taken.tokens, expected.tokens)
