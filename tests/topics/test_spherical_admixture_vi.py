"""Variational inference of spherical admixtures: bound, steps and results."""

import sys

import numpy as np
import pytest
from scipy import sparse, stats
from scipy.special import logsumexp

from pymc_geodesic.distributions.von_mises_fisher_draws import draw_von_mises_fisher
from pymc_geodesic.ops.bessel import log_vmf_normalizer
from pymc_geodesic.runtime.threads import Workers
from pymc_geodesic.topics import (
    ConvergenceWarning,
    log_perplexity,
    spherical_admixture_vi,
    top_words,
)
from pymc_geodesic.topics.mean_field import (
    AdmixturePrior,
    TopicFactors,
    bound_of_topics,
    document_terms,
    natural_target,
)
from pymc_geodesic.topics.spherical_admixture_vi import MeanField

K, W, D = 3, 12, 60
NUMBERS = {"alpha": 1.0, "kappa": 300.0, "sigma": 20.0, "kappa0": 20.0}
QUIET = {"random_seed": 1, "progressbar": False}


@pytest.fixture(scope="module")
def truth():
    topics = np.kron(np.eye(K), np.ones(W // K)) + 0.05
    return topics / np.linalg.norm(topics, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def corpus(truth):
    """Documents with three groups of words."""
    rng = np.random.default_rng(5)
    means = rng.dirichlet(np.full(K, 0.5), size=D) @ truth
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    rows = np.abs(draw_von_mises_fisher(rng, means, np.full(D, 300.0), None))
    rows[rows < 0.1] = 0.0
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def inference(vectors, local_steps=20):
    mean = np.asarray(vectors.sum(axis=0)).ravel()
    numbers = (NUMBERS["kappa"], NUMBERS["sigma"], NUMBERS["kappa0"])
    prior = AdmixturePrior(mean / np.linalg.norm(mean), np.full(K, NUMBERS["alpha"]), *numbers)
    start = prior.mean + np.random.default_rng(2).normal(size=(K, W)) / np.sqrt(W)
    return MeanField(vectors, prior, TopicFactors(20.0 * start), local_steps)


def falls(fit, passes=25):
    """Whether any pass lowers the bound by more than rounding does."""
    elbo = np.array([fit.pass_over_all() for _ in range(passes)])
    return bool(np.any(np.diff(elbo) < -1e-10 * np.abs(elbo).max()))


@pytest.mark.parametrize("local_steps", [1, 20])
def test_bound_does_not_decrease(corpus, local_steps):
    assert not falls(inference(corpus, local_steps))


class TopicsAttractEachOther(MeanField):
    """A mutant: the coupling of topics has the wrong sign, without step halving."""

    def _improve_topics(self, cosines):
        kappa, workers = self.prior.kappa, Workers(1)
        terms = document_terms(
            self.vectors, self.concentrations, cosines, self.factors, kappa, workers
        )
        wrong = terms._replace(coupling=-terms.coupling)
        self.factors = TopicFactors(natural_target(self.prior, self.factors, wrong))
        cosines = self.vectors @ self.factors.mean.T
        moved = document_terms(
            self.vectors, self.concentrations, cosines, self.factors, kappa, workers
        )
        return moved.value - terms.value


def test_mutant_of_topic_coupling_decreases_the_bound(corpus):
    fit = inference(corpus)
    fit.__class__ = TopicsAttractEachOther
    assert falls(fit)


def log_evidence(vectors, alpha, kappa, sigma, kappa0, mean):
    """Of two topics: topics from the prior, proportions by quadrature; and its standard error."""
    rng = np.random.default_rng(7)
    n, width = 100_000, vectors.shape[1]
    mu = draw_von_mises_fisher(rng, np.tile(mean, (n, 1)), np.full(n, kappa0), None)
    beta = [draw_von_mises_fisher(rng, mu, np.full(n, sigma), None) for _ in range(2)]
    share = (np.arange(40) + 0.5) / 40
    weight = stats.beta(alpha, alpha).logpdf(share) - np.log(40)
    gram = np.sum(beta[0] * beta[1], axis=1)[:, None]
    length = np.sqrt(share**2 + (1 - share) ** 2 + 2 * share * (1 - share) * gram)
    total = np.zeros(n)
    for v in vectors:
        cosine = (beta[0] @ v)[:, None] * share + (beta[1] @ v)[:, None] * (1 - share)
        total += logsumexp(weight + kappa * cosine / length, axis=1)
    total += len(vectors) * log_vmf_normalizer(width, kappa)
    ratio = np.exp(total - total.max())
    error = ratio.std() / ratio.mean() / np.sqrt(n)
    return total.max() + np.log(ratio.mean()), error


TINY = np.array([[0.9, 0.4, 0.1], [0.1, 0.5, 0.8], [0.5, 0.6, 0.3], [0.2, 0.2, 0.9]])
TINY /= np.linalg.norm(TINY, axis=1, keepdims=True)


def test_bound_is_below_the_evidence():
    numbers = {"alpha": 2.0, "kappa": 25.0, "sigma": 12.0, "kappa0": 10.0}
    mean = TINY.sum(axis=0) / np.linalg.norm(TINY.sum(axis=0))
    evidence, error = log_evidence(TINY, **numbers, mean=mean)
    fit = spherical_admixture_vi(TINY, 2, **numbers, tolerance=1e-7, max_passes=300, **QUIET)
    elbo = float(fit["variational"]["elbo"][-1])
    assert error < 0.05
    assert elbo < evidence - 5 * error
    # the gap is at least log 2, from the two orders of the topics
    assert elbo > evidence - 2.5

    # without the KL divergence of the proportions it would not be a bound
    factors = fit["variational"]
    a = factors["theta_concentration"].values
    topics = TopicFactors(factors["concentration"].values[:, None] * factors["direction"].values)
    prior = AdmixturePrior(mean, np.full(2, 2.0), 25.0, 12.0, 10.0)
    fitted = document_terms(TINY, a, TINY @ topics.mean.T, topics, 25.0, Workers(1)).value
    mutant = fitted + 4 * float(log_vmf_normalizer(3, 25.0)) + bound_of_topics(prior, topics)
    assert mutant > evidence + 5 * error


def test_bound_equals_the_evidence_of_known_topics():
    """All topics are known and equal, so that every mixture is."""
    mean = np.array([0.6, 0.0, 0.8])
    numbers = {"alpha": 1e6, "kappa": 5.0, "sigma": 1e5, "kappa0": 1e9}
    fit = spherical_admixture_vi(TINY, 2, **numbers, mean=mean, start=[mean, mean], **QUIET)
    expected = np.sum(log_vmf_normalizer(3, 5.0) + 5.0 * TINY @ mean)
    assert float(fit["variational"]["elbo"][-1]) == pytest.approx(expected, abs=2e-3)


def test_minibatches_add_up_to_all_documents(corpus):
    """With fixed proportions, the steps of a partition average to that of all documents."""
    fit = inference(corpus)
    fit.pass_over_all()
    cosines = np.ascontiguousarray(corpus @ fit.factors.mean.T)

    def target(rows, factor):
        parts = corpus[rows], fit.concentrations[rows], np.ascontiguousarray(cosines[rows])
        terms = document_terms(*parts, fit.factors, NUMBERS["kappa"], Workers(1)).scaled(factor)
        return natural_target(fit.prior, fit.factors, terms)

    partition = np.array_split(np.random.default_rng(1).permutation(D), 4)
    average = np.mean([target(rows, 4.0) for rows in partition], axis=0)
    np.testing.assert_allclose(average, target(np.arange(D), 1.0), rtol=1e-10)


@pytest.mark.parametrize("batch_size", [None, 15])
def test_finds_the_topics(corpus, truth, batch_size):
    """The initial topics are near the true ones, since there are several modes."""
    start = truth + 0.3 * np.random.default_rng(3).normal(size=(K, W))
    options = {"batch_size": batch_size, "max_passes": 30, "start": start}
    fit = spherical_admixture_vi(sparse.csr_matrix(corpus), K, **NUMBERS, **options, **QUIET)
    factors = fit["variational"]
    cosine = np.sum(factors["direction"].values * truth, axis=1)
    assert np.all(cosine > 0.95)
    assert np.all(cosine > np.sum(start * truth, axis=1) / np.linalg.norm(start, axis=1))
    nearest = np.argmax(corpus @ truth.T, axis=1)
    assert np.mean(nearest == factors["theta_concentration"].values.argmax(axis=1)) > 0.9


@pytest.mark.filterwarnings("ignore::pymc_geodesic.topics.ConvergenceWarning")
@pytest.mark.parametrize("batch_size", [None, 20])
def test_dense_and_sparse_rows_agree(corpus, batch_size):
    fits = [
        spherical_admixture_vi(
            rows, K, **NUMBERS, batch_size=batch_size, max_passes=5, draws=2, **QUIET
        )
        for rows in (corpus, sparse.coo_array(corpus))
    ]
    for name in ("direction", "concentration", "theta_concentration", "elbo"):
        np.testing.assert_allclose(*(fit["variational"][name] for fit in fits), rtol=1e-6)


@pytest.mark.filterwarnings("ignore::pymc_geodesic.topics.ConvergenceWarning")
@pytest.mark.parametrize("batch_size", [None, 20])
def test_a_seed_gives_the_same_on_any_number_of_cores(corpus, batch_size, monkeypatch):
    fits = []
    for n_threads in (1, 2, 2):
        monkeypatch.setattr(
            sys.modules[MeanField.__module__], "Workers", lambda n=n_threads: Workers(n)
        )
        fits.append(
            spherical_admixture_vi(
                corpus, K, **NUMBERS, batch_size=batch_size, max_passes=3, **QUIET
            )
        )
    for fit in fits[1:]:
        for group, name in (("posterior", "beta"), ("variational", "elbo")):
            np.testing.assert_array_equal(fit[group][name], fits[0][group][name])


def test_diagnostics_read_what_is_returned(corpus):
    words = [f"w{i}" for i in range(W)]
    fit = spherical_admixture_vi(corpus, K, **NUMBERS, vocabulary=words, draws=5, **QUIET)
    assert dict(fit.posterior["beta"].sizes) == {"chain": 1, "draw": 5, "topic": K, "word": W}
    table = top_words(fit, n=4)
    groups = {frozenset(int(word[1:]) // 4 for word in row) for row in table.values}
    assert groups == {frozenset([i]) for i in range(K)}
    mean = np.tile(corpus.mean(axis=0) / np.linalg.norm(corpus.mean(axis=0)), (K, 1))
    alone = log_perplexity(mean, corpus, alpha=1.0, kappa=300.0, random_seed=1)
    assert log_perplexity(fit, corpus, random_seed=1) < alone
    cosine = np.sum(fit.posterior["beta"].values[0] * fit["variational"]["direction"].values, -1)
    xi = fit["variational"]["concentration"].values
    deviation = 1.0 - cosine.mean(axis=0)  # (W − 1) / (2 ξ) on average
    np.testing.assert_allclose(deviation * 2 * xi / (W - 1), 1.0, atol=0.9)


def test_callback_receives_topics_and_can_stop_the_run(corpus):
    seen = []

    def stop_at_fifty(direction, xi, n_documents):
        np.testing.assert_allclose(np.linalg.norm(direction, axis=1), 1.0)
        assert xi.shape == (K,)
        seen.append(n_documents)
        if n_documents >= 50:
            raise StopIteration

    fit = spherical_admixture_vi(
        corpus, K, **NUMBERS, batch_size=20, callback=stop_at_fifty, **QUIET
    )
    assert seen == [20, 40, 60]
    assert fit["variational"].sizes["pass"] == 1


@pytest.mark.filterwarnings("ignore::pymc_geodesic.topics.ConvergenceWarning")
def test_start_sets_the_initial_topics(corpus, truth):
    fit = spherical_admixture_vi(corpus, K, **NUMBERS, start=2.0 * truth, max_passes=1, **QUIET)
    assert np.all(np.diag(fit["variational"]["direction"].values @ truth.T) > 0.98)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"V": 2.0 * np.eye(3)}, "row 0 of V has length 2"),
        ({"n_topics": 1}, "n_topics"),
        ({"sigma": -1.0}, "sigma"),
        ({"batch_size": D + 1}, "batch_size=61 exceeds the 60 documents"),
        ({"max_passes": 0}, "max_passes"),
        ({"local_steps": 0}, "local_steps"),
        ({"draws": 0}, "draws"),
        ({"step_size": -0.1}, "step_size"),
        ({"start": np.eye(2)}, "start must be 3 nonzero topics of 12 words"),
        ({"vocabulary": ["a"]}, "vocabulary"),
    ],
)
def test_invalid_input_raises(corpus, change, message):
    arguments = {"V": corpus, "n_topics": K, **NUMBERS} | change
    with pytest.raises(ValueError, match=message):
        spherical_admixture_vi(**arguments, **QUIET)


def test_unconverged_fit_warns(corpus):
    options = {"draws": 1, "max_passes": 2, **NUMBERS, **QUIET}
    words = r"did not converge within max_passes=2: the last pass still gained .* nats for each"
    with pytest.warns(ConvergenceWarning, match=words) as caught:
        spherical_admixture_vi(corpus, K, tolerance=1e-9, **options)
    assert caught[0].filename == __file__
    spherical_admixture_vi(corpus, K, tolerance=1e9, **options)  # warnings are errors
    spherical_admixture_vi(corpus, K, tolerance=1e-9, batch_size=20, **options)
