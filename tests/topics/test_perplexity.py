from importlib import import_module

import arviz as az
import numpy as np
import pytest
from scipy import sparse
from scipy.stats import vonmises_fisher

from pymc_geodesic.datasets import load_20news_different
from pymc_geodesic.mixtures import spherical_kmeans
from pymc_geodesic.topics import log_perplexity

N_TOPICS, N_WORDS = 3, 7


def unit(rng, *shape):
    x = np.abs(rng.normal(size=shape))
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


@pytest.fixture
def problem():
    rng = np.random.default_rng(1)
    return unit(rng, 2, 4, N_TOPICS, N_WORDS), unit(rng, 11, N_WORDS)


def by_the_formula(beta, held_out, alpha, kappa, n_theta, seed):
    """The definition, one density at a time, by SciPy's von Mises-Fisher density."""
    theta = np.random.default_rng(seed).dirichlet(np.full(N_TOPICS, alpha), size=n_theta)
    total = 0.0
    for document in held_out:
        density = [
            vonmises_fisher(mean / np.linalg.norm(mean), k).pdf(document)
            for topics, k in zip(beta.reshape(-1, N_TOPICS, N_WORDS), kappa, strict=True)
            for mean in theta @ topics
        ]
        total += np.log(np.mean(density))
    return -total / len(held_out)


def test_agrees_with_the_definition(problem):
    beta, held_out = problem
    expected = by_the_formula(beta, held_out, 0.7, np.full(8, 12.0), 6, seed=3)
    options = {"alpha": 0.7, "kappa": 12.0, "n_theta": 6, "random_seed": 3}
    assert log_perplexity(beta, held_out, **options) == pytest.approx(expected, rel=1e-10)
    sparse_documents = sparse.csr_matrix(held_out)
    assert log_perplexity(beta, sparse_documents, **options) == pytest.approx(expected, rel=1e-10)


def test_result_does_not_depend_on_the_block_size(problem, monkeypatch):
    beta, held_out = problem
    options = {"alpha": 0.7, "kappa": 12.0, "n_theta": 6, "random_seed": 3}
    whole = log_perplexity(beta, held_out, **options)
    monkeypatch.setattr(import_module("pymc_geodesic.topics.perplexity"), "BLOCK_SIZE", 24)
    assert log_perplexity(beta, held_out, **options) == pytest.approx(whole, rel=1e-12)


def test_settings_are_read_from_the_draws(problem):
    beta, held_out = problem
    kappa = np.linspace(5.0, 20.0, 8)
    groups = {
        "posterior": {"beta": beta, "kappa": kappa.reshape(2, 4)},
        "constant_data": {"alpha": 0.7, "kappa": 1.0},
    }
    options = {"n_theta": 6, "random_seed": 3}
    # A sampled kappa goes before a constant one, and an argument before both.
    got = log_perplexity(az.from_dict(groups), held_out, **options)
    assert got == pytest.approx(by_the_formula(beta, held_out, 0.7, kappa, 6, 3), rel=1e-10)
    got = log_perplexity(az.from_dict(groups), held_out, kappa=3.0, **options)
    expected = by_the_formula(beta, held_out, 0.7, np.full(8, 3.0), 6, 3)
    assert got == pytest.approx(expected, rel=1e-10)
    del groups["posterior"]["kappa"]
    got = log_perplexity(az.from_dict(groups), held_out, **options)
    expected = by_the_formula(beta, held_out, 0.7, np.full(8, 1.0), 6, 3)
    assert got == pytest.approx(expected, rel=1e-10)


def test_fewer_draws_are_evenly_spaced_over_the_chains(problem):
    beta, held_out = problem
    options = {"alpha": 0.7, "kappa": 12.0, "n_theta": 6, "random_seed": 3}
    chosen = beta.reshape(8, N_TOPICS, N_WORDS)[[0, 4, 7]]
    assert log_perplexity(beta, held_out, n_draws=3, **options) == pytest.approx(
        log_perplexity(chosen, held_out, **options), rel=1e-12
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"alpha": None}, "`alpha` is neither in"),
        ({"kappa": None}, "`kappa` is neither in"),
        ({"alpha": [1.0, 1.0]}, "`alpha` must be one number or one for each of the 3 topics"),
        ({"n_draws": 9}, "n_draws=9 exceeds the 8 draws"),
        ({"held_out": np.eye(6)}, r"`held_out` needs the shape \(documents, 7\)"),
        ({"held_out": 2 * np.eye(7)}, "Row 0 of `held_out` has length 2"),
        ({"idata": np.ones(7)}, "Topics need the shape"),
        ({"idata": 2 * np.eye(3, 7)}, "Topic 0 of draw 0 is not a unit vector"),
        ({"held_out": (2 * np.eye(7)).tolist()}, "Row 0 of `held_out` has length 2"),
    ],
)
def test_inconsistent_arguments_raise(problem, change, message):
    beta, held_out = problem
    arguments = {"idata": beta, "held_out": held_out, "alpha": 0.7, "kappa": 12.0} | change
    with pytest.raises(ValueError, match=message):
        log_perplexity(**arguments)


def test_missing_topics_raise(problem):
    with pytest.raises(ValueError, match="no variable 'beta'"):
        log_perplexity(az.from_dict({"posterior": {"phi": problem[0]}}), problem[1])


def test_reference_values_on_20news_different(data_home):
    corpus = load_20news_different(data_home)
    n_words = corpus.train.shape[1]
    options = {"alpha": 10.0, "kappa": 3e4}
    uniform = np.full((20, n_words), n_words**-0.5)
    assert log_perplexity(uniform, corpus.test, **options) == pytest.approx(5889.93, abs=0.01)
    mean = np.asarray(corpus.train.sum(axis=0)).ravel()
    mean /= np.linalg.norm(mean)
    same = np.tile(mean, (20, 1))
    assert log_perplexity(same, corpus.test, **options) == pytest.approx(5092.60, abs=0.01)
    # The clusters depend on their random starts and the estimate on 200 random proportions,
    # which moves it by some 30 for twenty clusters and 50 for three.
    for n_clusters, reference in ((20, 4708.27), (3, 4444.17)):
        centres, _ = spherical_kmeans(corpus.train, n_clusters, random_seed=1)
        value = np.mean(
            [log_perplexity(centres, corpus.test, random_seed=i, **options) for i in range(5)]
        )
        assert value == pytest.approx(reference, abs=60)
