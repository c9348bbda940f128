"""Gibbs kernels and perplexity of topics against enumeration of all assignments."""

import itertools

import numpy as np
import pytest
from scipy.special import gammaln

from pymc_geodesic.kernels.topic_assignments import (
    Entries,
    Expectations,
    Sweeps,
    Topics,
    sample_documents,
)
from pymc_geodesic.runtime.streams import new_stream, split_stream
from pymc_geodesic.topics import completion_probabilities, perplexity
from pymc_geodesic.topics.lda_gibbs import (
    Concentrations,
    Tokens,
    Totals,
    collapsed_sweep,
    count_assignments,
)


def stream(seed=1):
    return new_stream(np.random.default_rng(seed))


def log_dirichlet_multinomial(counts, concentration):
    """Log-probability of labels with these counts, in a given order; last axis summed."""
    total = gammaln(concentration.sum()) - gammaln(concentration.sum() + counts.sum(axis=-1))
    return total + np.sum(gammaln(concentration + counts) - gammaln(concentration), axis=-1)


WORDS = np.array([0, 0, 1, 1, 2], dtype=np.int32)
STARTS = np.array([0, 3, 5])
ALPHA, BETA = np.array([0.4, 0.9]), np.array([0.3, 0.5, 0.2])


def test_collapsed_gibbs_samples_assignments_exactly():
    states = np.array(list(itertools.product(range(2), repeat=5)))
    one_hot = np.eye(2)[states]
    log_p = sum(
        log_dirichlet_multinomial(one_hot[:, a:b].sum(axis=1), ALPHA)
        for a, b in itertools.pairwise(STARTS)
    )
    of_words = np.einsum("sik,iv->skv", one_hot, np.eye(3)[WORDS])
    log_p = log_p + log_dirichlet_multinomial(of_words, BETA).sum(axis=1)
    exact = np.exp(log_p - log_p.max())
    exact /= exact.sum()

    n, thin = 40_000, 8
    assignments = np.zeros(5, dtype=np.int32)
    tokens = Tokens(STARTS, WORDS, assignments)
    totals = Totals(np.empty((2, 2)), np.empty((3, 2)), np.empty(2))
    count_assignments(tokens, totals)
    source = stream()
    seen = np.zeros(32)
    for _ in range(n):
        for _ in range(thin):
            collapsed_sweep(tokens, Concentrations(ALPHA, BETA), source, totals)
        seen[int("".join(map(str, assignments)), 2)] += 1
    z = (seen - n * exact) / np.sqrt(n * exact * (1 - exact))
    assert np.abs(z).max() < 5
    np.testing.assert_array_equal(totals.of_topics, totals.of_documents.sum(axis=0))


PHI = np.array([[0.7, 0.1], [0.2, 0.3], [0.1, 0.6]])  # by word
DOCUMENT = np.array([0, 0, 2, 1])


def exact_assignments():
    """All topics of the words of DOCUMENT, and their probabilities given PHI."""
    states = np.array(list(itertools.product(range(2), repeat=4)))
    log_p = log_dirichlet_multinomial(np.eye(2)[states].sum(axis=1), ALPHA)
    log_p = log_p + np.log(PHI[DOCUMENT, states]).sum(axis=1)
    return states, np.exp(log_p) / np.exp(log_p).sum()


def sample_copies(n, log_theta, n_discarded, n_kept):
    values, columns = np.array([2.0, 1.0, 1.0]), np.array([0, 1, 2], dtype=np.int32)
    counts, proportions = np.zeros((3, 2)), np.empty((n, 2))
    sample_documents(
        Entries(values, columns, np.tile([0, 3], (n, 1))),
        Topics(np.arange(3, dtype=np.int32), PHI), ALPHA, Sweeps(n_discarded, n_kept),
        split_stream(stream(), n), log_theta, Expectations(counts, proportions),
    )  # fmt: skip
    return counts / (n * n_kept), proportions


def test_expected_counts_of_a_document_are_exact():
    states, p = exact_assignments()
    in_topic = np.eye(2)[states]
    exact = np.einsum("s,sik,iv->vk", p, in_topic, np.eye(3)[DOCUMENT])
    n = 100_000
    counts, proportions = sample_copies(n, np.zeros((n, 2)), 10, 1)
    np.testing.assert_allclose(counts, exact, atol=5 * 0.5 / np.sqrt(n))
    np.testing.assert_allclose(counts.sum(axis=1), [2.0, 1.0, 1.0], rtol=1e-9)
    mean = p @ (ALPHA + in_topic.sum(axis=1)) / (ALPHA.sum() + 4)
    np.testing.assert_allclose(proportions.mean(axis=0), mean, atol=5 * 0.3 / np.sqrt(n))


def test_proportions_stay_exact():
    """From exact draws one transition leads to exact draws."""
    states, p = exact_assignments()
    n, rng = 100_000, np.random.default_rng(2)
    topics = states[rng.choice(len(p), size=n, p=p)]
    theta = rng.beta(ALPHA[0] + (topics == 0).sum(axis=1), ALPHA[1] + (topics == 1).sum(axis=1))
    log_theta = np.log(np.stack([theta, 1 - theta], axis=1)) + 3.0  # any constant
    sample_copies(n, log_theta, 0, 1)
    after = np.exp(log_theta)
    np.testing.assert_allclose(after.sum(axis=1), 1.0, rtol=1e-12)
    shape = ALPHA + np.eye(2)[states].sum(axis=1)
    first = shape[:, 0] / shape.sum(axis=1)
    second = first * (shape[:, 0] + 1) / (shape.sum(axis=1) + 1)
    for power, exact in ((1, p @ first), (2, p @ second)):
        moved = after[:, 0] ** power
        assert abs(moved.mean() - exact) < 5 * moved.std() / np.sqrt(n)


def test_underflowing_weights_are_computed_by_logarithms():
    n = 1000
    log_theta = np.tile([0.0, -1000.0], (n, 1))
    phi = np.array([[1e-290, 0.5]])
    counts, proportions = np.zeros((1, 2)), np.empty((n, 2))
    sample_documents(
        Entries(np.ones(1), np.zeros(1, dtype=np.int32), np.tile([0, 1], (n, 1))),
        Topics(np.zeros(1, dtype=np.int32), phi), np.full(2, 1e-3), Sweeps(0, 1),
        split_stream(stream(), n), log_theta, Expectations(counts, proportions),
    )  # fmt: skip
    assert np.isfinite(log_theta).all()
    np.testing.assert_allclose(counts, [[0.0, n]], atol=1e-6)


def test_perplexity_by_enumeration():
    """E[θ | words] of all assignments of the observed words, in the formula."""
    states, p = exact_assignments()
    theta = p @ (ALPHA + np.eye(2)[states].sum(axis=1)) / (ALPHA.sum() + 4)
    observed, held_out = np.array([[2, 1, 1], [0, 0, 0]]), np.array([[0, 3, 1], [1, 0, 0]])
    expected = np.array([*(PHI[1:] @ theta), PHI[0] @ ALPHA / ALPHA.sum()])
    found = completion_probabilities(
        PHI.T, observed, held_out, alpha=ALPHA, n_tune=50, n_sweeps=100_000, random_seed=1
    )
    np.testing.assert_allclose(found, expected, rtol=0.01)
    value = perplexity(
        np.stack([PHI.T, PHI.T]), observed, held_out, alpha=ALPHA, n_sweeps=20_000, random_seed=1
    )
    assert value == pytest.approx(np.exp(-np.sum([3, 1, 1] * np.log(expected)) / 5), rel=0.01)
