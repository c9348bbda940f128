"""Split-merge proposals: exact posterior of partitions, mutants, counts and arguments."""

import sys

import numpy as np
import pytest

from pymc_geodesic.mixtures import (
    dp_categorical_gibbs,
    dp_categorical_slice,
    dp_categorical_stochastic_slice,
)
from pymc_geodesic.mixtures.dp_categorical import Counts, Mixture
from pymc_geodesic.mixtures.dp_categorical_gibbs import CollapsedChain, Start, initialize_clusters
from tests.grids import slow
from tests.mixtures.all_partitions import BETA, COUNTS, PRIOR, QUIET, Enumeration, by_batches, run
from tests.mutants import Mutant

MODULE = sys.modules[CollapsedChain.__module__]


class ByProposalsAlone:
    """A chain with split-merge proposals only, and fixed α."""

    alpha = 1.4

    def __init__(self):
        self._chain = CollapsedChain(
            Mixture.from_arguments(COUNTS, BETA, self.alpha), np.random.default_rng(1)
        )
        self._chain.advance()
        self.assignments = self._chain.assignments

    def advance(self):
        for _ in range(3):
            self._chain.split_or_merge()


def deviations(exact, found):
    often = np.flatnonzero(exact.p > 0.01)
    return by_batches((exact.indices(found)[:, None] == often).astype(float), exact.p[often])


@pytest.fixture(scope="module")
def exact():
    return Enumeration(ByProposalsAlone.alpha)


@pytest.mark.slow
def test_split_merge_proposals_sample_partitions_exactly(exact):
    found, _ = run(ByProposalsAlone(), 20_000, 3)
    assert len(np.unique(exact.indices(found))) > 45
    assert np.abs(deviations(exact, found)).max() < 5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "edit"),
    [
        slow("_log_split_ratio", (" + math.log(both - 1.0)", "")),
        slow("_log_split_ratio", (" - math.log(n_rows - sizes[first])", "")),
        slow("_log_split_ratio", ("value -= math.lgamma(both)", "pass")),
        ("_restricted_sweep", ("if parts[i] == 1 else log_odds", "")),
        slow("split_or_merge", ("log_ratio -= log_q", "pass")),
        ("split_or_merge", ("if log_uniform >= -log_ratio:", "if log_uniform >= log_ratio:")),
    ],
    ids=lambda value: value[1] or value[0] if isinstance(value, tuple) else None,
)
def test_mutants_of_proposals_are_detected(part, edit, exact, monkeypatch):
    kernel = Mutant(edit[1], getattr(MODULE, part), edit=edit).compile()
    if part != "split_or_merge":
        kernel = Mutant(edit[1], MODULE.split_or_merge, {part: kernel}).compile()
    monkeypatch.setattr(MODULE, "split_or_merge", kernel)
    found, _ = run(ByProposalsAlone(), 6_000, 3)
    assert np.abs(deviations(exact, found)).max() > 8


def test_sweeps_with_proposals_sample_partitions_exactly():
    exact = Enumeration(PRIOR)
    chain = CollapsedChain(
        Mixture.from_arguments(COUNTS, BETA, PRIOR), np.random.default_rng(1), iter(lambda: 2, None)
    )
    found, alpha = run(chain, 12_000, 4)
    assert np.abs(deviations(exact, found)).max() < 5
    assert abs(by_batches(alpha, exact.alpha)) < 4


LONG = np.array([400.0, 300.0, 1.0])
"""A row of tokens whose product of ratios overflows."""


def log_odds(kernel):
    """Difference of the kernel's log-odds from the exact value."""
    table = np.array([[1.0, 4000.0], [0.0, 3000.0], [700.0, 0.0]])
    totals, beta = table.sum(axis=0), np.array([0.01, 0.02, 0.03])
    expected = 0.0
    for part, sign in ((0, -1.0), (1, 1.0)):
        before, alone = table[:, part], np.ones(1)
        for own, also in ((before, -sign), (before + LONG, sign)):
            counts = Counts(alone, own[:, None], own[None].sum(axis=1))
            expected += also * counts.log_probability(1.0, beta)
    assert abs(expected) > np.log(np.finfo(float).max)
    tokens = Mixture.from_arguments(LONG[None], beta, 1.0).rows.tokens
    return kernel(tokens, beta, beta.sum(), table, totals) - expected


def test_log_odds_of_long_rows():
    assert abs(log_odds(MODULE._log_odds)) < 1e-8


@pytest.mark.parametrize(
    "edit",
    [
        ("beta[token] + repeats", "beta[token]"),
        slow(("beta_sum + t", "beta_sum")),
        slow(("product = 1.0", "product = 2.0")),
    ],
    ids=lambda edit: edit[1],
)
def test_mutants_of_log_odds_are_detected(edit):
    assert abs(log_odds(Mutant(edit[1], MODULE._log_odds, edit=edit).compile())) > 0.1


def test_counts_are_updated_and_arrays_enlarged():
    rng = np.random.default_rng(2)
    mixture = Mixture.from_arguments(rng.multinomial(6, np.full(5, 0.2), size=60), 0.2, 20.0)
    chain = CollapsedChain(mixture, rng)
    chain.advance()
    outcomes = [chain.split_or_merge() for _ in range(3_000)]
    expected = Counts.from_assignments(
        mixture.rows, chain.assignments, 5, capacity=chain._counts.sizes.size
    )
    for found, wanted in zip(chain._counts, expected, strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert {-1, 0, 1} == set(outcomes)


NOISE = np.random.default_rng(3).multinomial(4, np.full(5, 0.2), size=200)
KINDS = np.kron(np.eye(8, dtype=int), np.full((60, 2), 3))


def test_splits_find_clusters_that_single_row_updates_do_not():
    """All rows start in one cluster; moving a single row decreases the likelihood."""
    mixture = Mixture.from_arguments(KINDS, 0.5, 1e-6)
    lonely, divided = (CollapsedChain(mixture, np.random.default_rng(1), iter([n] * 20))
                       for n in (0, 10))  # fmt: skip
    for chain in (lonely, divided):
        chain.begin(np.arange(len(KINDS)), np.zeros(len(KINDS), dtype=np.int32))
        for _ in range(20):
            chain.advance()
    assert len(set(divided.assignments)) == 8
    assert len(set(lonely.assignments)) < 8


def test_numbers_of_proposals():
    """A pair sets the numbers during warm-up and after it; initialization has its own."""
    options = {"draws": 3, "tune": 2, "thin": 2, "keep_assignments": True} | QUIET
    plain, none, some, later = (
        dp_categorical_gibbs(NOISE, 1.0, 0.5, split_merge=number, **options)
        for number in (0, (0, 0), (5, 0), (0, 5))
    )
    assert plain.equals(none)
    assert not plain.equals(some)
    assert not plain.equals(later)
    for sampler in (dp_categorical_slice, dp_categorical_stochastic_slice):
        trees = [
            sampler(NOISE, 1.0, 0.5, start_sweeps=3, batch_size=50, start_split_merge=n, **options)
            for n in (0, 0, 5)
        ]
        assert trees[0].equals(trees[1])
        assert not trees[0].equals(trees[2])
    few = initialize_clusters(
        Mixture.from_arguments(KINDS, 0.5, 1e-6), np.random.default_rng(1), Start(100, 20, 10)
    )
    assert len(set(few.assignments)) == 8


@pytest.mark.parametrize(
    ("sampler", "arguments", "message"),
    [
        (dp_categorical_gibbs, {"split_merge": -1}, "split_merge must be an integer"),
        (dp_categorical_gibbs, {"split_merge": (1, 0.5)}, "split_merge must be an integer"),
        (dp_categorical_gibbs, {"split_merge": (1, 2, 3)}, "integer or a pair"),
        (dp_categorical_slice, {"start_split_merge": -1}, "start_split_merge"),
    ],
)
def test_invalid_numbers_of_proposals_raise(sampler, arguments, message):
    with pytest.raises(ValueError, match=message):
        sampler(COUNTS, **arguments, **QUIET)
