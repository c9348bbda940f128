"""The stochastic slice sampler: exact with all rows and long steps, unbiased counts otherwise."""

import sys

import numpy as np
import pytest
from scipy.special import digamma, polygamma

from pymc_geodesic.mixtures import dp_categorical_stochastic_slice, perplexity
from pymc_geodesic.mixtures.collapsed_gibbs import draw_concentration_of_sticks
from pymc_geodesic.mixtures.dp_categorical import Mixture
from pymc_geodesic.mixtures.dp_categorical_gibbs import Start
from pymc_geodesic.mixtures.dp_categorical_stochastic_slice import (
    StochasticSliceChain,
    expanded_mean_step,
)
from pymc_geodesic.runtime.streams import new_stream
from tests.grids import slow
from tests.mixtures.all_partitions import BETA, COUNTS, PRIOR, QUIET, Enumeration, by_batches, run
from tests.mutants import Mutant

PARTS = sys.modules[StochasticSliceChain.__module__]
FORGETFUL = 30.0
"""Step size after which SCIR has forgotten its state: an exact draw given the counts."""


@pytest.fixture(scope="module")
def exact():
    return Enumeration(PRIOR)


def all_rows(prior, n, thin=4):
    mixture = Mixture.from_arguments(COUNTS, BETA, prior)
    rng = np.random.default_rng(1)
    chain = StochasticSliceChain(mixture, rng, "scir", None, FORGETFUL, Start(5))
    return run(chain, n, thin)


def deviations(exact, found):
    often = np.flatnonzero(exact.p > 0.01)
    return by_batches((exact.indices(found)[:, None] == often).astype(float), exact.p[often])


@pytest.mark.slow
@pytest.mark.parametrize("n", [6_000, slow(12_000)])
def test_full_data_and_long_steps_sample_partitions_exactly(exact, n):
    """The mutants below have errors of at least 50 standard errors after 6,000 draws."""
    found, alpha = all_rows(PRIOR, n)
    assert np.abs(deviations(exact, found)).max() < 5
    assert abs(by_batches(alpha, exact.alpha)) < 4


def test_sticks_without_later_rows_are_detected(monkeypatch):
    monkeypatch.setattr(PARTS, "_sums_of_later", lambda sizes: 0.0 * sizes)
    found, _ = all_rows(1.0, 3_000)
    assert np.abs(deviations(Enumeration(1.0), found)).max() > 8


@pytest.mark.parametrize(
    "edit",
    [
        ("alpha + after", "alpha"),
        slow(("1.0 + sizes[k]", "sizes[k] + 5.0")),
        slow(("shape + sizes.size", "shape + 1.0")),
    ],
    ids=lambda edit: edit[1],
)
def test_mutants_of_the_concentration_are_detected(exact, edit, monkeypatch):
    module = sys.modules[Mixture.__module__]
    mutant = Mutant(edit[1], draw_concentration_of_sticks, edit=edit).compile()
    monkeypatch.setattr(module, "draw_concentration_of_sticks", mutant)
    _, alpha = all_rows(PRIOR, 3_000)
    assert abs(by_batches(alpha, exact.alpha)) > 6


def expanded_mean_moments(step, n=40_000, n_steps=20):
    """Errors of means of log ω of n simplices after exact initial draws, in standard errors."""
    prior, counts = np.array([2.0, 3.0, 1.5]), np.array([4.0, 0.0, 9.0])
    rng = np.random.default_rng(1)
    omega = rng.dirichlet(prior + counts, size=n)
    state = np.log(omega * rng.gamma(prior.sum(), size=(n, 1)))
    stream = new_stream(rng)
    shape = (n, 3)
    for _ in range(n_steps):
        step(state, np.broadcast_to(prior, shape).copy(), np.broadcast_to(counts, shape).copy(),
             5e-3, stream)  # fmt: skip
    total = np.log(np.exp(state).sum(axis=1))
    expected = digamma(prior + counts) - digamma((prior + counts).sum())
    variance = polygamma(1, prior + counts) - polygamma(1, (prior + counts).sum())
    z = ((state - total[:, None]).mean(axis=0) - expected) / np.sqrt(variance / n)
    of_sum = (np.exp(total).mean() - prior.sum()) / np.sqrt(prior.sum() / n)
    return np.append(z, of_sum)


def test_sgrld_leaves_dirichlet_distributions_invariant():
    assert np.abs(expanded_mean_moments(expanded_mean_step)).max() < 5


@pytest.mark.slow
@pytest.mark.parametrize(
    "edit",
    [
        ("2.0 * step_size * state", "step_size * state"),
        ("- state * seen / total", ""),
        slow((" - state\n", " - 0.5 * state\n")),
        slow(("prior[row, j] + counts", "0.5 * prior[row, j] + counts")),
    ],
    ids=lambda edit: edit[1] or edit[0],
)
def test_mutants_of_sgrld_are_detected(edit):
    step = Mutant(edit[1], expanded_mean_step, edit=edit).compile()
    assert np.abs(expanded_mean_moments(step)).max() > 8


TWO_KINDS = np.repeat([[6, 5, 0, 0], [0, 0, 5, 5]], 300, axis=0)


@pytest.mark.parametrize("method", ["scir", "sgrld"])
def test_minibatches_find_the_clusters(method):
    idata = dp_categorical_stochastic_slice(
        TWO_KINDS, batch_size=50, method=method, draws=100, thin=5, start_rows=50,
        keep_assignments=True, **QUIET,
    )  # fmt: skip
    weights = idata.posterior["weights"].values[0]
    np.testing.assert_allclose(weights[:, :2].mean(axis=0), 0.5, atol=0.12)
    np.testing.assert_allclose(weights[:, :2].sum(axis=1), 1.0, atol=0.1)
    assert perplexity(idata, TWO_KINDS[[0, -1]]) < 2.5
    last = idata.posterior["assignments"].values[0, -1]
    assert len(set(last[:300])) == len(set(last[300:])) == 1
    assert last[0] != last[-1]


def test_minibatch_counts_are_unbiased():
    """The expected sums of SCIR's gamma variables are the prior plus all tokens of a cluster."""
    mixture = Mixture.from_arguments(TWO_KINDS, 0.1, 1e-4)  # makes a third cluster improbable
    chain = StochasticSliceChain(mixture, np.random.default_rng(1), "scir", 50, 0.2, Start(50, 20))
    sums, sticks = [], []
    for _ in range(2_000):
        chain.advance()
        first = [chain.assignments[0], chain.assignments[-1]]
        sums.append(np.exp(chain._log_topics[first]).sum(axis=1))
        sticks.append(np.exp(chain._log_sticks[min(first)]))
    np.testing.assert_allclose(np.mean(sums, axis=0), [3_300.4, 3_000.4], rtol=0.02)
    np.testing.assert_allclose(np.mean(sticks, axis=0), [301.0, 300.0], rtol=0.03)


def test_seeds_batches_and_shapes():
    options = {"draws": 3, "tune": 2, "batch_size": 4, "thin": 2, "progressbar": False}
    runs = [
        dp_categorical_stochastic_slice(COUNTS, random_seed=3, chains=2, method=method, **options)
        for method in ("scir", "scir", "sgrld")
    ]
    assert runs[0].equals(runs[1])
    assert not runs[0].equals(runs[2])
    assert set(runs[0].sample_stats.data_vars) == {"n_sticks", "n_instantiated"}
    first, second = runs[0].posterior["alpha"].values
    assert not np.any(first == second)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "sgld"}, "method must be one of"),
        ({"step_size": 0.0}, "step_size"),
        ({"step_size": np.nan}, "step_size"),
        ({"batch_size": 9}, "batch_size=9 exceeds the 5 rows. Use batch_size <= 5"),
        ({"batch_size": 1000}, "batch_size=1000 exceeds the 5 rows"),
        ({"batch_size": "all"}, "batch_size must be a positive integer, got 'all'"),
        ({"start_rows": 0}, "start_rows"),
        ({"start_sweeps": -1}, "start_sweeps"),
    ],
)
def test_invalid_input_raises(arguments, message):
    with pytest.raises(ValueError, match=message):
        dp_categorical_stochastic_slice(COUNTS, **({"batch_size": 2} | arguments), **QUIET)


def test_fewer_rows_than_the_default_batch_size():
    options = {"draws": 3, "tune": 2, **QUIET}
    usual = dp_categorical_stochastic_slice(COUNTS, **options)
    every = dp_categorical_stochastic_slice(COUNTS, batch_size=None, **options)
    np.testing.assert_array_equal(usual.posterior["weights"], every.posterior["weights"])
