"""Variational distributions of proportions: moments, derivatives and maximization."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import digamma as scipy_digamma
from scipy.special import gammaln, polygamma

from pymc_geodesic.distributions.von_mises_fisher_draws import draw_von_mises_fisher
from pymc_geodesic.runtime.numerics import digamma, trigamma
from pymc_geodesic.runtime.threads import Workers
from pymc_geodesic.topics.mean_field import (
    AscentSettings,
    Sums,
    TopicFactors,
    TopicMoments,
    differentiate_by_topics,
    document_terms,
    maximize_document_bounds,
)

K, V = 3, 4
XI = np.array([18.0, 50.0, 30.0])
A = np.array([[2.0, 0.7, 3.0]])


def test_derivatives_of_log_gamma():
    x = np.logspace(-6, 6, 200)
    np.testing.assert_allclose([digamma(v) for v in x], scipy_digamma(x), rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose([trigamma(v) for v in x], polygamma(1, x), rtol=1e-13)


@pytest.fixture(scope="module")
def factors():
    mu = np.abs(np.random.default_rng(1).normal(size=(K, V)))
    return TopicFactors(XI[:, None] * mu / np.linalg.norm(mu, axis=1, keepdims=True))


@pytest.fixture(scope="module")
def document():
    v = np.abs(np.random.default_rng(2).normal(size=V))
    return v / np.linalg.norm(v)


def empty_sums():
    return Sums(np.zeros((1, K)), np.zeros((1, K)), np.zeros(K), np.zeros(K))


def rho(a, cosines, moments, sums=None):
    return differentiate_by_topics(a, cosines, moments, 1.0, sums or empty_sums())


@pytest.fixture(scope="module")
def drawn(factors, document):
    """Products v · x and squared lengths x · x of mixtures x of topics, in twenty samples."""
    rng = np.random.default_rng(3)
    shape = (20, 40_000)
    theta = rng.dirichlet(A[0], size=shape)
    mixture = np.zeros((*shape, V))
    for k in range(K):
        directions = np.broadcast_to(factors.direction[k], (*shape, V))
        beta = draw_von_mises_fisher(rng, directions, np.full(shape, XI[k]), None)
        mixture += theta[..., k, None] * beta
    return mixture @ document, np.sum(mixture**2, axis=-1)


def by_draws(c, y):
    """The closed form of ρ with moments of draws, and its standard error."""
    first, second, third = (part.mean(axis=1) for part in (c, y, c * y))
    each = 1.5 * first / np.sqrt(second) - 0.5 * third / second**1.5
    return each.mean(), each.std(ddof=1) / np.sqrt(len(each))


def test_expected_cosine_against_draws(factors, document, drawn):
    expected, error = by_draws(*drawn)
    found = rho(A, (document @ factors.mean.T)[None], factors.moments)
    assert abs(found - expected) < 5 * error
    exact = (drawn[0] / np.sqrt(drawn[1])).mean()
    assert drawn[0].min() > 0
    assert found < exact - 5 * error  # a lower bound, significantly


def wrong_diagonal(moments, factors):
    return moments._replace(gram=factors.mean @ factors.mean.T)


def points_instead_of_distributions(moments, factors):
    return moments._replace(isotropic=np.zeros(K), aligned=np.ones(K))


@pytest.mark.parametrize("mutant", [wrong_diagonal, points_instead_of_distributions])
def test_mutants_of_moments_are_detected(factors, document, drawn, mutant):
    expected, error = by_draws(*drawn)
    cosines = (document @ factors.mean.T)[None]
    assert abs(rho(A, cosines, mutant(factors.moments, factors)) - expected) > 5 * error


def difference(function, x, direction, h=1e-6):
    return (function(x + h * direction) - function(x - h * direction)) / (2 * h)


def test_derivatives_by_the_moments_of_topics(factors, document):
    cosines, moments, sums = (document @ factors.mean.T)[None], factors.moments, empty_sums()
    rho(A, cosines, moments, sums)
    for k, unit in enumerate(np.eye(K)):
        found = difference(lambda c: rho(A, c, moments), cosines, unit)
        assert found == pytest.approx(sums.by_cosine[0, k], abs=1e-8)
        for name in ("isotropic", "aligned"):
            function = lambda x, name=name: rho(A, cosines, moments._replace(**{name: x}))  # noqa: E731
            found = difference(function, getattr(moments, name), unit)
            assert found == pytest.approx(getattr(sums, f"by_{name}")[k], abs=1e-8)
        other = np.eye(K)[(k + 1) % K]
        both = np.outer(unit, other) + np.outer(other, unit)
        found = difference(lambda g: rho(A, cosines, moments._replace(gram=g)), moments.gram, both)
        by_gram = np.outer(sums.by_gram[0], A[0])
        assert found == pytest.approx(np.sum(by_gram * both), abs=1e-8)


def test_derivative_by_the_topics_themselves(factors, document):
    """Through products, Gram matrix and second moments."""
    workers = Workers(1)
    vectors = document[None]

    def value(natural):
        moved = TopicFactors(natural)
        return document_terms(vectors, A, vectors @ moved.mean.T, moved, 1.0, workers).value

    terms = document_terms(vectors, A, vectors @ factors.mean.T, factors, 1.0, workers)
    by_mean = (
        terms.linear + terms.coupling @ factors.mean + terms.radial[:, None] * factors.direction
    )
    rng = np.random.default_rng(4)
    for _ in range(5):
        direction = rng.normal(size=(K, V))
        moved = difference(
            lambda natural: TopicFactors(natural).mean, factors.natural, direction, 1e-4
        )
        found = difference(value, factors.natural, direction, 1e-4)
        assert found == pytest.approx(np.sum(by_mean * moved), rel=1e-6, abs=1e-10)


ALPHA, KAPPA = np.array([1.5, 0.5, 3.0]), 200.0


def bound(a, cosines, moments):
    total = a.sum()
    divergence = gammaln(total) - gammaln(ALPHA.sum()) - np.sum(gammaln(a) - gammaln(ALPHA))
    divergence += np.sum((a - ALPHA) * (scipy_digamma(a) - scipy_digamma(total)))
    return KAPPA * rho(a[None], cosines, moments) - divergence


def test_ascent_is_monotone_and_reaches_the_maximum(factors, document):
    cosines, moments = (document @ factors.mean.T)[None], factors.moments
    a = ALPHA[None].copy()
    values = [bound(a[0], cosines, moments)]
    for _ in range(40):
        found = maximize_document_bounds(
            a, cosines, moments, ALPHA, AscentSettings(KAPPA, 1e-13, 1)
        )
        values.append(found)
        assert found == pytest.approx(bound(a[0], cosines, moments), rel=1e-12)
    assert np.all(np.diff(values) >= 0.0)
    best = minimize(lambda u: -bound(np.exp(u), cosines, moments), np.log(ALPHA), tol=1e-10)
    assert values[-1] == pytest.approx(-best.fun, abs=1e-6)
    np.testing.assert_allclose(a[0], np.exp(best.x), rtol=1e-2)


def test_proportions_of_an_uninformative_document_are_those_of_the_prior(factors):
    """Equal topics fit equally in any mixture, apart from their variance."""
    a = np.array([[7.0, 0.1, 20.0]])
    moments = TopicMoments(np.eye(K), np.zeros(K), np.ones(K))
    maximize_document_bounds(
        a, np.full((1, K), 0.5), moments, ALPHA, AscentSettings(0.0, 1e-14, 200)
    )
    np.testing.assert_allclose(a[0], ALPHA, rtol=1e-6)
