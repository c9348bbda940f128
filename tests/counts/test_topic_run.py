"""Inner steps of topic samplers, with known counts."""

import numpy as np
import pytest
from scipy import special, stats

from pymc_geodesic.counts.topic_counts import TopicCounts
from pymc_geodesic.counts.topic_run import SETTINGS, run_topics
from pymc_geodesic.kernels.topic_updates import scir_words, sgrld_words
from pymc_geodesic.runtime.streams import new_stream
from pymc_geodesic.runtime.threads import Workers
from tests.grids import slow

V, K = 2 * SETTINGS.words_per_part + 100, 3
COUNTED = np.arange(0, V, 3, dtype=np.int32)
COUNTS = np.array([0.5, 2.0, 40.0])  # of every counted word, by topic
SCALE = 10.0
BETA = 0.3


class KnownCounts:
    """Estimator that finds the same counts in every minibatch, in two parts."""

    def __init__(self):
        self.workers = Workers()
        self.totals_seen = []

    def assign(self, log_state, log_totals, argument, stream):
        np.testing.assert_allclose(log_totals, special.logsumexp(log_state, axis=0), rtol=1e-12)
        slots = np.full(V, -1, dtype=np.int32)
        slots[COUNTED] = np.arange(len(COUNTED))
        both = np.broadcast_to(COUNTS / SCALE, (len(COUNTED), K))
        return TopicCounts(COUNTED, slots, np.stack([0.25 * both, 0.75 * both]), SCALE)


def scir_move(log_state, shape, log_totals, found, step_size, stream):
    scir_words(log_state, shape, step_size, stream)


def sgrld_move(log_state, shape, log_totals, found, step_size, stream):
    sgrld_words(log_state, shape, log_totals, found.totals, step_size, stream)


def run(move, position, step_size, n_steps, seed=1):
    prior = np.full((K, V), BETA)
    stream = new_stream(np.random.default_rng(seed))
    run_topics(KnownCounts(), move, position, prior, np.arange(n_steps), step_size, stream)
    return position


def posterior_shape():
    shape = np.full((K, V), BETA)
    shape[:, COUNTED] += COUNTS[:, None]
    return shape


@pytest.mark.parametrize("step_size", [slow(0.05), 3.0])
def test_scir_keeps_the_gamma_distribution_of_known_counts(step_size):
    shape = posterior_shape()
    start = stats.loggamma.rvs(shape, random_state=1)
    end = run(scir_move, start.copy(), step_size, 3)
    uniform = stats.gamma.cdf(np.exp(end), shape)
    for topic in range(K):
        assert stats.kstest(uniform[topic], "uniform").pvalue > 1e-4
    assert not np.any(start == end)


def test_scir_forgets_its_starting_point():
    end = run(scir_move, np.full((K, V), -300.0), 40.0, 1)
    uniform = stats.gamma.cdf(np.exp(end), posterior_shape())
    assert stats.kstest(uniform.ravel(), "uniform").pvalue > 1e-4


def test_sgrld_update_has_the_exact_mean_and_variance():
    r"""θ' = |θ + h(β + n − ω Σn − θ) + √(2hθ) noise| has this mean and variance."""
    h = 1e-3
    theta = np.broadcast_to(np.array([[3.0], [2.0], [60.0]]), (K, V))
    end = np.exp(run(sgrld_move, np.log(theta), h, 1))
    totals = len(COUNTED) * COUNTS[:, None]
    drift = posterior_shape() - totals / V - theta
    for words in (COUNTED, np.setdiff1d(np.arange(V), COUNTED)):
        noise = (end - theta - h * drift)[:, words] / np.sqrt(2 * h * theta[:, words])
        assert stats.kstest(noise.ravel(), "norm").pvalue > 1e-4


@pytest.mark.parametrize("move", [scir_move, sgrld_move])
def test_draws_do_not_depend_on_the_number_of_threads(move, monkeypatch):
    start = stats.loggamma.rvs(posterior_shape(), random_state=2)
    ends = []
    for n_threads in (1, 3):
        monkeypatch.setattr(
            Workers, "__init__", lambda self, n=n_threads: self.__dict__.update(
                _n_threads=n, _pool=None
            ),
        )  # fmt: skip
        ends.append(run(move, start.copy(), 0.01, 2))
    np.testing.assert_array_equal(*ends)
