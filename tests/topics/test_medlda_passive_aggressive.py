"""Passive-aggressive topics: one minibatch against enumeration, mutants, invalid input."""

import itertools
from importlib import import_module

import numpy as np
import pytest
from scipy.special import digamma, gammaln

from pymc_geodesic.kernels.hinge_augmentation import draw_scales
from pymc_geodesic.runtime.streams import new_stream
from pymc_geodesic.topics import medlda_passive_aggressive
from pymc_geodesic.topics.labeled_documents import Hinge, LabeledCounts, Passes
from pymc_geodesic.topics.medlda_passive_aggressive import (
    NormalWeights,
    OnlineSettings,
    PassiveAggressiveTopics,
    sweep_expected_margins,
)
from tests.mutants import Mutant
from tests.topics.labeled_documents import corpus

WORDS = np.array([0, 0, 2, 1], dtype=np.int32)
STATES = np.array(list(itertools.product(range(2), repeat=4)))
ONE_HOT = np.eye(2)[STATES]
ZBAR = ONE_HOT.mean(axis=1)
ALPHA, BETA = np.array([0.6, 0.9]), np.array([0.7, 0.9, 0.5])
DELTA = np.array([[2.7, 1.0], [1.2, 1.9], [0.8, 2.6]])
COST, MARGIN = 3.0, 1.3
SIGNS = np.array([1.0, -1.0])
WEIGHTS = NormalWeights(
    np.array([[[1.5, 0.4], [0.4, 0.8]], [[0.6, -0.2], [-0.2, 1.1]]]),
    np.array([[2.2, -0.9], [-0.4, 1.1]]),
)
SCALES = np.array([0.5, 1.7])
N = 20_000


def normalised(log_p):
    p = np.exp(log_p - log_p.max())
    return p / p.sum()


def log_words(topics):
    """Log-probability of the states and the words, without labels."""
    totals = ONE_HOT.sum(axis=1)
    return gammaln(ALPHA + totals).sum(axis=1) + np.log(topics[WORDS, STATES]).sum(axis=1)


def expected_square():
    scores = ZBAR @ WEIGHTS.mean.T
    variance = np.einsum("sj,ljk,sk->sl", ZBAR, WEIGHTS.covariance, ZBAR)
    return (MARGIN - SIGNS * scores) ** 2 + variance


def probabilities_given_scales(topics):
    margins = MARGIN - SIGNS * (ZBAR @ WEIGHTS.mean.T)
    b = 0.5 * COST
    exponent = -b * margins - b**2 * expected_square() / (2 * SCALES)
    return normalised(log_words(topics) + exponent.sum(axis=1))


def topic_probabilities(topics):
    """With λ integrated out: the integral is elementary."""
    b, margins = 0.5 * COST, MARGIN - SIGNS * (ZBAR @ WEIGHTS.mean.T)
    return normalised(log_words(topics) - b * (margins + np.sqrt(expected_square())).sum(axis=1))


def first_topic_probabilities(topics):
    """Token after token, each given those before it."""
    p = np.ones(len(STATES))
    for s, state in enumerate(STATES):
        totals = ALPHA.copy()
        for word, k in zip(WORDS, state, strict=True):
            chance = totals * topics[word]
            p[s] *= chance[k] / chance.sum()
            totals[k] += 1.0
    return p


def z_scores_of_states(sweep, n_sweeps, start, exact):
    """Errors of the distribution of assignments, and of the counts."""
    topics = np.exp(digamma(DELTA) - digamma(DELTA.sum(axis=0)))
    p = exact(topics)
    assignments = np.full(4 * N, start, dtype=np.int32)
    counts, in_topics = np.zeros((3, 2)), np.empty((N, 2))
    second = WEIGHTS.covariance + np.einsum("lj,lk->ljk", WEIGHTS.mean, WEIGHTS.mean)
    stream = new_stream(np.random.default_rng(1))
    for repeat in range(n_sweeps):
        sweep(
            np.arange(N + 1) * 4, np.tile(WORDS, N), np.arange(N), np.arange(3, dtype=np.int32),
            topics, ALPHA, WEIGHTS.mean, second, np.tile(SIGNS, (N, 1)), np.tile(SCALES, (N, 1)),
            COST, MARGIN, 1.0 if repeat == n_sweeps - 1 else 0.0, stream, assignments, counts,
            in_topics,
        )  # fmt: skip
    states = assignments.reshape(N, 4)
    np.testing.assert_array_equal(in_topics, np.eye(2)[states].sum(axis=1))
    seen = np.bincount(states @ [8, 4, 2, 1], minlength=16)
    of_states = (seen - N * p) / np.sqrt(N * p * (1 - p))
    expected = np.einsum("s,sik,iv->vk", p, ONE_HOT, np.eye(3)[WORDS])
    of_counts = (counts / N - expected) / (0.5 * np.sqrt(2 / N))  # no deviation exceeds this
    return np.concatenate([of_states, of_counts.ravel()])


@pytest.mark.parametrize(
    ("n_sweeps", "start", "exact"),
    [(12, 0, probabilities_given_scales), (1, -1, first_topic_probabilities)],
    ids=["given scales", "first topics"],
)
def test_sweeps_sample_assignments_exactly(n_sweeps, start, exact):
    assert np.abs(z_scores_of_states(sweep_expected_margins, n_sweeps, start, exact)).max() < 5


@pytest.mark.slow
@pytest.mark.parametrize(
    "mutant",
    [
        Mutant(name, sweep_expected_margins, edit=edit)
        for name, edit in {
            "token left in the quadratic form": ("products[j, k] -= second[j, topic, k]", "pass"),
            "cross term once": ("+ 2.0 * products", "+ products"),
            "no quadratic form": ("- curvature * square", ""),
            "margin without its scale": ("(1.0 + inverse * margin)", "(1.0 + margin)"),
        }.items()
    ],
    ids=str,
)
def test_mutants_of_sweeps_are_detected(mutant):
    assert np.abs(z_scores_of_states(mutant.compile(), 12, 0, probabilities_given_scales)).max() > 5


def learner_of_copies(rounds=1):
    """A learner with an informative state, before a minibatch of copies of one document."""
    counts = LabeledCounts(
        np.arange(N + 1) * 4, np.tile(WORDS, N), np.tile(SIGNS, (N, 1)), ALPHA, BETA
    )
    learner = PassiveAggressiveTopics(
        counts,
        Hinge(COST, MARGIN, 1.0),
        OnlineSettings(N, 12, 2, rounds),
        np.random.default_rng(1),
    )
    learner.concentration[:] = DELTA
    learner._totals = DELTA.sum(axis=0)
    learner.weights = WEIGHTS
    return learner


def z_scores_of_a_step():
    """Errors of the update by a minibatch against enumeration, in standard errors."""
    learner = learner_of_copies()
    learner.step()
    p = topic_probabilities(np.exp(digamma(DELTA) - digamma(DELTA.sum(axis=0))))
    b, inverse = 0.5 * COST, 1.0 / (0.5 * COST * np.sqrt(expected_square()))
    values = [
        np.einsum("sik,iv->svk", ONE_HOT, np.eye(3)[WORDS]),
        b**2 * np.einsum("sl,sj,sk->sljk", inverse, ZBAR, ZBAR),
        b * np.einsum("sl,sk->slk", SIGNS * (1.0 + b * MARGIN * inverse), ZBAR),
    ]
    added = [
        learner.concentration - DELTA,
        learner.weights.precision - WEIGHTS.precision,
        learner.weights.linear - WEIGHTS.linear,
    ]
    z = []
    for value, found in zip(values, added, strict=True):
        mean = np.einsum("s,s...->...", p, value)
        variance = np.einsum("s,s...->...", p, (value - mean) ** 2)
        z.append(((found / N - mean) / np.sqrt(variance / N)).ravel())
    return np.concatenate(z)


def test_update_by_a_minibatch_against_enumeration():
    assert np.abs(z_scores_of_a_step()).max() < 5


def test_cost_that_is_not_halved_is_detected(monkeypatch):
    module = import_module("pymc_geodesic.topics.medlda_passive_aggressive")
    doubled = lambda rng, slack, cost: draw_scales(rng, slack, 2 * cost)  # noqa: E731
    monkeypatch.setattr(module, "draw_scales", doubled)
    assert np.abs(z_scores_of_a_step()).max() > 10


def test_omitted_weight_variance_is_detected(monkeypatch):
    def without_spread(self, zbar, signs, margin):
        return (margin - signs * (zbar @ self.mean.T)) ** 2 + 1e-9

    monkeypatch.setattr(NormalWeights, "expected_square", without_spread)
    assert np.abs(z_scores_of_a_step()).max() > 10


def test_rounds_count_a_minibatch_once():
    learner = learner_of_copies(rounds=3)
    learner.step()
    added = (learner.concentration - DELTA).sum(axis=1)
    np.testing.assert_allclose(added, N * np.bincount(WORDS))
    np.testing.assert_allclose(learner._totals, learner.concentration.sum(axis=0))


def test_draws_of_weights_have_their_mean_and_covariance():
    rng = np.random.default_rng(2)
    drawn = np.array([WEIGHTS.draw(rng) for _ in range(20_000)])
    np.testing.assert_allclose(WEIGHTS.precision @ WEIGHTS.covariance, [np.eye(2)] * 2, atol=1e-12)
    z = (drawn.mean(axis=0) - WEIGHTS.mean) / (drawn.std(axis=0) / np.sqrt(len(drawn)))
    assert np.abs(z).max() < 5
    products = np.einsum("nlj,nlk->nljk", drawn - WEIGHTS.mean, drawn - WEIGHTS.mean)
    z = (products.mean(axis=0) - WEIGHTS.covariance) / (products.std(axis=0) / np.sqrt(len(drawn)))
    assert np.abs(z).max() < 5


# --- what users see


def test_draws_are_reproducible_and_learn_the_labels():
    counts, labels = corpus()
    counts[5] = 0
    options = {
        "n_topics": 3, "margin": 30.0, "batch_size": 13, "random_seed": 1, "draws": 10, "tune": 15,
    }  # fmt: skip
    first = medlda_passive_aggressive(counts, 2 * labels - 1, chains=2, **options)
    second = medlda_passive_aggressive(counts, 2 * labels - 1, chains=2, **options)
    for name in ("topics", "weights", "zbar"):
        np.testing.assert_array_equal(first.posterior[name], second.posterior[name])
        assert not np.array_equal(first.posterior[name][0], first.posterior[name][1])
    np.testing.assert_allclose(first.posterior["topics"].sum("word"), 1.0)
    sums = first.posterior["zbar"].sum("topic").values[:, -1]
    np.testing.assert_allclose(np.delete(sums, 5, axis=-1), 1.0)
    assert first.sample_stats["accuracy"][:, -1].min() > 0.95
    assert first.sample_stats["documents"].values[0].tolist() == [12.0 * s for s in range(16, 26)]
    classes = medlda_passive_aggressive(
        counts, labels, var_names=["weights"], classes=["a", "b"], **options
    )
    assert dict(classes.posterior.sizes) == {"chain": 1, "draw": 10, "topic": 3, "class": 2}
    assert classes.sample_stats["accuracy"][0, -1] > 0.95


def test_one_pass_by_default():
    counts, labels = corpus()
    idata = medlda_passive_aggressive(counts, 2 * labels - 1, 2, batch_size=7, n_steps=2)
    assert idata.sample_stats["documents"].values[0].tolist() == [12.0, 24.0, 36.0, 48.0, 60.0]
    np.testing.assert_allclose(idata.posterior["zbar"].sum("topic").values[0, -1], 1.0)


@pytest.mark.parametrize(("n", "batch_size", "multiple"), [(60, 7, 2), (100, 64, 1), (3, 8, 1)])
def test_a_pass_visits_every_document(n, batch_size, multiple):
    passes = Passes.of_all(np.random.default_rng(1), n, batch_size, multiple)
    assert passes.n_minibatches % multiple == 0
    for _ in range(2):
        seen = [passes.next_rows() for _ in range(passes.n_minibatches)]
        assert sorted(np.concatenate(seen)) == list(range(n))
        sizes = [len(each) for each in seen]
        assert max(sizes) <= batch_size
        assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(("n", "batch_size"), [(60, 7), (100, 64), (3, 8)])
def test_minibatches_of_equal_size_omit_remaining_documents(n, batch_size):
    passes = Passes.of_one_size(np.random.default_rng(1), n, batch_size)
    size = min(n, batch_size)
    left_out = []
    for _ in range(2):
        seen = [passes.next_rows() for _ in range(passes.n_minibatches)]
        assert {len(each) for each in seen} == {size}
        rows = np.concatenate(seen)
        assert len(set(rows)) == len(rows) == n - n % size
        left_out.append(set(range(n)) - set(rows))
    assert n % size == 0 or left_out[0] != left_out[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rounds": 0}, "rounds must be"),
        ({"batch_size": 0}, "batch_size must be"),
        ({"sweeps": (1, 0)}, "sweeps"),
        ({"draws": 0}, "draws must be"),
        ({"margin": -1.0}, "margin must be positive"),
        ({"labels": [1, -1]}, "one label for each of the 3 rows"),
    ],
)
def test_invalid_settings_raise(arguments, message):
    good = {"counts": np.ones((3, 4)), "labels": [1, -1, 1], "n_topics": 2}
    with pytest.raises(ValueError, match=message):
        medlda_passive_aggressive(**(good | arguments))
