r"""Mean-field distributions of topics and proportions, and the evidence lower bound.

The model is `pymc_geodesic.topics.spherical_admixture`.

With :math:`\theta \sim \text{Dirichlet}(a)` and topics of moments
:math:`E \beta_k = b_k`, :math:`E \beta_k \beta_k^\top = s_k I + r_k b_k b_k^\top`, independent of
each other, let :math:`c = v \cdot \beta^\top\theta` and :math:`y = \|\beta^\top\theta\|^2`. The
expected cosine :math:`E\, c\, y^{-1/2}` has no closed form. The convex :math:`y^{-1/2}` is bounded
below by its tangent, so that for :math:`c \ge 0`

.. math:: E \frac{c}{\sqrt y} \ge \rho = \frac{3}{2} \frac{E c}{\sqrt{E y}}
          - \frac{1}{2} \frac{E\, c y}{(E y)^{3/2}},

whose moments are polynomials in :math:`a`, :math:`v \cdot b_k` and :math:`b_j \cdot b_k`.
The kernels maximize :math:`\kappa\rho - \text{KL}(\text{Dirichlet}(a) \| \text{Dirichlet}(\alpha))`
over a by natural gradients, and differentiate ρ with respect to the moments of the topics.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pymc_geodesic.ops.bessel import (
    log_vmf_normalizer,
    mean_resultant_length,
    mean_resultant_length_slope,
)
from pymc_geodesic.runtime.jit import Matrix, Vector, borrow, kernel, part
from pymc_geodesic.runtime.numerics import digamma, trigamma
from pymc_geodesic.runtime.threads import Workers, parts_of

Array = NDArray[np.float64]

CHUNK = 25
"""Number of documents per call of a kernel. The order of summation depends on it, and not on the
number of cores."""

SWEEPS = 3
"""Number of coordinate-ascent rounds over the topics per batch update."""

PROPORTION_HALVINGS = 30
"""Maximum number of halvings of the step of one document."""

SMALLEST_PART = 0.2
"""Minimum ratio of a component of a after and before one step."""


class TopicMoments(NamedTuple):
    """Moments of the topics that the bound of a document depends on.

    Parameters
    ----------
    gram : ndarray, shape (K, K)
        b_j · b_k, with ones, E‖β_k‖², on the diagonal.
    isotropic, aligned : ndarray, shape (K,)
        s and r, of E ββᵀ = s I + r b bᵀ.
    """

    gram: Matrix
    isotropic: Vector
    aligned: Vector


class AscentSettings(NamedTuple):
    """Settings of the natural-gradient ascent over the proportions of a document.

    Parameters
    ----------
    kappa : float
        Concentration of documents.
    tolerance : float
        Predicted gain of a step, in nats, below which the ascent of a document ends.
    steps : int
        Maximum number of steps.
    """

    kappa: float
    tolerance: float
    steps: int


class Sums(NamedTuple):
    """Derivatives of κ Σ_d ρ_d, by document or summed over documents.

    Parameters
    ----------
    by_cosine : ndarray, shape (n, K)
        With respect to v_d · b_k.
    by_gram : ndarray, shape (n, K)
        h_d; Σ_d h_d a_dᵀ is the derivative with respect to the matrix of b_j · b_k.
    by_isotropic, by_aligned : ndarray, shape (K,)
        With respect to s and r; incremented.
    """

    by_cosine: Matrix
    by_gram: Matrix
    by_isotropic: Vector
    by_aligned: Vector


class _Moments(NamedTuple):
    """Sums over topics in the moments of one document; see `_moments`."""

    total: float
    cosine: float
    squared: float
    product: float
    isotropic_part: float


@part
def _moments(a, cosines, topics, mixed, weights):  # type: ignore[no-untyped-def]
    """Rising-factorial numerators of E c, E y and E cy.

    Also fills ``mixed`` with G a and ``weights`` with (a (a + 1) r − a²) v·b.
    """
    gram, isotropic, aligned = topics
    n = a.size
    total = 0.0
    cosine = 0.0
    for i in range(n):
        total += a[i]
        cosine += a[i] * cosines[i]
    squared = 0.0
    third = 0.0
    isotropic_part = 0.0
    for i in range(n):
        row = gram[i]
        product = 0.0
        for j in range(n):
            product += row[j] * a[j]
        mixed[i] = product
        squared += a[i] * product
        rising = a[i] * (a[i] + 1.0)
        weights[i] = (rising * aligned[i] - a[i] * a[i]) * cosines[i]
        others = cosine - cosines[i] * a[i]
        third += a[i] * a[i] * cosines[i] + rising * isotropic[i] * others
        third += weights[i] * (product - a[i])
        isotropic_part += rising * isotropic[i]
    product = cosine * (squared + total + 2.0) + 2.0 * third
    return _Moments(total, cosine, squared, product, isotropic_part)


@part
def _expected_cosine(moments):  # type: ignore[no-untyped-def]
    """ρ, and its derivatives with respect to E c, E y and E cy."""
    total = moments.total
    first = moments.cosine / total
    second = (moments.squared + total) / (total * (total + 1.0))
    third = moments.product / (total * (total + 1.0) * (total + 2.0))
    root = 1.0 / math.sqrt(second)
    cube = root / second
    value = 1.5 * first * root - 0.5 * third * cube
    by_second = 0.75 * cube * (third / second - first)
    return value, 1.5 * root, by_second, -0.5 * cube


@part
def _differentiate_by_concentration(a, cosines, topics, moments, mixed, weights, gradient):  # type: ignore[no-untyped-def]
    """Write the gradient of ρ by the parameters of the Dirichlet distribution."""
    gram, isotropic, aligned = topics
    n = a.size
    total = moments.total
    _, by_first, by_second, by_third = _expected_cosine(moments)
    one, two = total, total * (total + 1.0)
    three = two * (total + 2.0)
    shared = -by_first * moments.cosine / (one * one)
    shared -= by_second * (moments.squared + total) * (2.0 * total + 1.0) / (two * two)
    shared -= (
        by_third * moments.product * (3.0 * total * total + 6.0 * total + 2.0) / (three * three)
    )
    by_first /= one
    by_second /= two
    by_third /= three
    cosine = moments.cosine
    for i in range(n):
        row = gram[i]
        product = 0.0
        for j in range(n):
            product += row[j] * weights[j]
        own, c, s = a[i], cosines[i], isotropic[i]
        cross = (2.0 * own + 1.0) * s * (cosine - c * own)
        cross += c * (moments.isotropic_part - own * (own + 1.0) * s)
        cross += ((2.0 * own + 1.0) * aligned[i] - 2.0 * own) * c * (mixed[i] - own)
        cross += product - weights[i]
        of_product = c * (moments.squared + total + 2.0) + cosine * (2.0 * mixed[i] + 1.0)
        of_product += 4.0 * own * c + 2.0 * cross
        gradient[i] = (
            shared + by_first * c + by_second * (2.0 * mixed[i] + 1.0) + by_third * of_product
        )


@part
def _divergence(a, alpha):  # type: ignore[no-untyped-def]
    """KL divergence of Dirichlet(a) from Dirichlet(α)."""
    total = 0.0
    prior = 0.0
    for i in range(a.size):
        total += a[i]
        prior += alpha[i]
    of_total = digamma(total)
    result = math.lgamma(total) - math.lgamma(prior)
    for i in range(a.size):
        result += math.lgamma(alpha[i]) - math.lgamma(a[i])
        result += (a[i] - alpha[i]) * (digamma(a[i]) - of_total)
    return result


@part
def _natural_direction(a, alpha, kappa, gradient, direction):  # type: ignore[no-untyped-def]
    """Compute F⁻¹∇ of the bound; return its first-order gain.

    F = diag ψ'(a) − ψ'(Σa) is the Fisher information, inverted by the Sherman–Morrison formula. The
    natural gradient of the divergence is a − α.
    """
    total = 0.0
    for i in range(a.size):
        total += a[i]
    of_total = trigamma(total)
    sum_inverse = 0.0
    sum_gradient = 0.0
    for i in range(a.size):
        inverse = 1.0 / trigamma(a[i])
        direction[i] = inverse
        sum_inverse += inverse
        sum_gradient += inverse * kappa * gradient[i]
    common = of_total * sum_gradient / (1.0 - of_total * sum_inverse)
    gain = 0.0
    sum_direction = 0.0
    for i in range(a.size):
        inverse = direction[i]
        direction[i] = inverse * (kappa * gradient[i] + common) + alpha[i] - a[i]
        gain += direction[i] * direction[i] / inverse
        sum_direction += direction[i]
    return gain - of_total * sum_direction * sum_direction


@part
def _maximize_one(a, cosines, topics, alpha, ascent, work):  # type: ignore[no-untyped-def]
    """Maximize the bound of one document over a, in place; return the bound."""
    mixed, weights, gradient, direction, trial = work[0], work[1], work[2], work[3], work[4]
    moments = _moments(a, cosines, topics, mixed, weights)
    value = ascent.kappa * _expected_cosine(moments)[0] - _divergence(a, alpha)
    step = 1.0
    for _ in range(ascent.steps):
        _differentiate_by_concentration(a, cosines, topics, moments, mixed, weights, gradient)
        gain = _natural_direction(a, alpha, ascent.kappa, gradient, direction)
        if not gain > ascent.tolerance:
            break
        accepted = False
        for _ in range(PROPORTION_HALVINGS):
            for i in range(a.size):
                trial[i] = max(a[i] + step * direction[i], SMALLEST_PART * a[i])
            moments = _moments(trial, cosines, topics, mixed, weights)
            proposed = ascent.kappa * _expected_cosine(moments)[0] - _divergence(trial, alpha)
            if proposed > value:
                accepted = True
                break
            step *= 0.5
        if not accepted:
            break
        value = proposed
        for i in range(a.size):
            a[i] = trial[i]
        step = min(2.0 * step, 1.0)
    return value


@kernel
def maximize_document_bounds(
    concentrations: Matrix,
    cosines: Matrix,
    topics: TopicMoments,
    alpha: Vector,
    ascent: AscentSettings,
) -> float:
    """Maximize the bounds of documents over the distributions of their proportions, in place.

    Parameters
    ----------
    concentrations : ndarray, shape (n, K)
        a of each document, updated; no bound decreases.
    cosines : ndarray, shape (n, K)
        v_d · b_k.
    topics : TopicMoments
    alpha : ndarray, shape (K,)
    ascent : AscentSettings

    Returns
    -------
    float
        Sum of the bounds κρ − KL.
    """
    every, products, topics, alpha = borrow((concentrations, cosines, topics, alpha))
    work = np.empty((5, alpha.size))
    total = 0.0
    for row in range(every.shape[0]):
        total += _maximize_one(every[row], products[row], topics, alpha, ascent, work)
    return total


@kernel
def differentiate_by_topics(
    concentrations: Matrix, cosines: Matrix, topics: TopicMoments, kappa: float, sums: Sums
) -> float:
    """Differentiate κ Σ_d ρ_d with respect to the moments of the topics.

    Parameters
    ----------
    concentrations, cosines, topics
        See `maximize_document_bounds`.
    kappa : float
    sums : Sums
        Output.

    Returns
    -------
    float
        κ Σ_d ρ_d.
    """
    every, products, topics, sums = borrow((concentrations, cosines, topics, sums))
    by_cosine, by_gram, by_isotropic, by_aligned = sums
    isotropic = topics.isotropic
    n = every.shape[1]
    mixed, weights = np.empty(n), np.empty(n)
    value = 0.0
    for row in range(every.shape[0]):
        a, c = every[row], products[row]
        moments = _moments(a, c, topics, mixed, weights)
        rho, by_first, by_second, by_third = _expected_cosine(moments)
        value += kappa * rho
        total = moments.total
        by_first *= kappa / total
        by_second *= kappa / (total * (total + 1.0))
        by_third *= kappa / (total * (total + 1.0) * (total + 2.0))
        for i in range(n):
            rising = a[i] * (a[i] + 1.0)
            others = moments.cosine - c[i] * a[i]
            factor = rising * topics.aligned[i] - a[i] * a[i]
            own = a[i] * (moments.squared + total + 2.0) + 2.0 * a[i] * a[i]
            own += 2.0 * factor * (mixed[i] - a[i])
            own += 2.0 * a[i] * (moments.isotropic_part - rising * isotropic[i])
            by_cosine[row, i] = by_first * a[i] + by_third * own
            by_gram[row, i] = (by_second + by_third * moments.cosine) * a[i]
            by_gram[row, i] += 2.0 * by_third * weights[i]
            by_isotropic[i] += by_third * 2.0 * rising * others
            by_aligned[i] += by_third * 2.0 * rising * c[i] * (mixed[i] - a[i])
    return value


class AdmixturePrior(NamedTuple):
    """Hyperparameters of a spherical admixture model: m, α of each topic, κ, σ and κ0."""

    mean: Array
    alpha: Array
    kappa: float
    sigma: float
    kappa0: float


class TopicFactors:
    r"""Variational distributions :math:`\text{vMF}(\mu_k, \xi_k)` of the topics.

    Parameters
    ----------
    natural : ndarray, shape (K, V)
        Natural parameters η_k = ξ_k μ_k, not zero.

    Attributes
    ----------
    xi, length : ndarray, shape (K,)
        Concentrations, and mean resultant lengths A(ξ).
    direction, mean : ndarray, shape (K, V)
        μ, and b = A(ξ) μ.
    """

    def __init__(self, natural: Array) -> None:
        self.natural = natural
        self.xi = np.linalg.norm(natural, axis=1)
        self.length = mean_resultant_length(natural.shape[1], self.xi)
        self.direction = natural / self.xi[:, None]
        self.mean = self.direction * self.length[:, None]

    @cached_property
    def moments(self) -> TopicMoments:
        """First and second moments; E ββᵀ of vMF(μ, ξ) is (A/ξ)(I − Vμμᵀ) + μμᵀ."""
        gram = self.mean @ self.mean.T
        np.fill_diagonal(gram, 1.0)
        isotropic = self.length / self.xi
        return TopicMoments(
            gram, isotropic, (1.0 - self.natural.shape[1] * isotropic) / self.length**2
        )

    def by_length(self, by_isotropic: Array, by_aligned: Array) -> Array:
        """Convert derivatives with respect to s = A/ξ and r = (1 − V s) / A² to those for A."""
        n_words = self.natural.shape[1]
        slope = mean_resultant_length_slope(n_words, self.xi)
        isotropic = self.length / self.xi
        isotropic_by_length = 1.0 / self.xi - isotropic / self.xi / slope
        aligned_by_length = -n_words * isotropic_by_length / self.length**2
        aligned_by_length -= 2.0 * (1.0 - n_words * isotropic) / self.length**3
        return by_isotropic * isotropic_by_length + by_aligned * aligned_by_length

    def entropy(self) -> float:
        """Entropy of all topics, with respect to surface measure."""
        each = log_vmf_normalizer(self.natural.shape[1], self.xi) + self.xi * self.length
        return -float(each.sum())


def corpus_mean_term(prior: AdmixturePrior, mean: Array) -> tuple[float, Array]:
    """Return the concentration ‖κ0 m + σ Σ b‖ of q(μ), and σ E μ."""
    total = prior.kappa0 * prior.mean + prior.sigma * mean.sum(axis=0)
    length = float(np.linalg.norm(total))
    resultant = float(mean_resultant_length(len(total), length))
    return length, prior.sigma * resultant * total / length


def bound_of_topics(prior: AdmixturePrior, factors: TopicFactors) -> float:
    """Terms of the bound without documents, at the optimal distribution of the corpus mean."""
    n_topics, n_words = factors.natural.shape
    length, _ = corpus_mean_term(prior, factors.mean)
    constants = log_vmf_normalizer(n_words, np.array([prior.kappa0, prior.sigma, length]))
    return float(constants[0] + n_topics * constants[1] - constants[2]) + factors.entropy()


class DocumentTerms(NamedTuple):
    """First-order expansion of κ Σ_d ρ_d in the moments of the topics.

    Attributes
    ----------
    value : float
    linear : ndarray, shape (K, V)
        Derivative with respect to b through v · b.
    coupling : ndarray, shape (K, K)
        Twice the derivative with respect to the matrix of b_j · b_k; zero on the diagonal.
    radial : ndarray, shape (K,)
        Derivative with respect to A(ξ) through the second moments.
    """

    value: float
    linear: Array
    coupling: Array
    radial: Array

    def scaled(self, factor: float) -> DocumentTerms:
        """Multiply all terms, as for a minibatch that represents all documents."""
        return DocumentTerms(
            factor * self.value, factor * self.linear, factor * self.coupling, factor * self.radial
        )


def natural_target(prior: AdmixturePrior, factors: TopicFactors, terms: DocumentTerms) -> Array:
    """Natural parameters of the full step: a natural-gradient step is η + s (target − η)."""
    gradient = terms.linear + terms.coupling @ factors.mean
    gradient += terms.radial[:, None] * factors.direction
    return gradient + corpus_mean_term(prior, factors.mean)[1]


def coordinate_target(prior: AdmixturePrior, factors: TopicFactors, terms: DocumentTerms) -> Array:
    """Natural parameters after coordinate ascent: one topic at a time, given the others.

    A simultaneous step of topics that share documents overshoots by a factor of up to K.
    """
    natural, direction, mean = factors.natural.copy(), factors.direction.copy(), factors.mean.copy()
    for _ in range(SWEEPS):
        for k in range(len(natural)):
            natural[k] = terms.linear[k] + terms.coupling[k] @ mean
            natural[k] += terms.radial[k] * direction[k] + corpus_mean_term(prior, mean)[1]
            moved = TopicFactors(natural[k : k + 1])
            direction[k], mean[k] = moved.direction[0], moved.mean[0]
    return natural


def maximize_proportions(
    concentrations: Array,
    cosines: Array,
    factors: TopicFactors,
    alpha: Array,
    settings: AscentSettings,
    workers: Workers,
) -> float:
    """Maximize the bounds of documents over their proportions; return their sum."""
    chunks = _chunks(len(concentrations))
    moments = factors.moments

    def run(i: int) -> float:
        part = chunks[i]
        return maximize_document_bounds.call(
            concentrations[part], cosines[part], moments, alpha, settings
        )

    return float(sum(workers.run(run, len(chunks))))


def document_terms(
    vectors: Any,
    concentrations: Array,
    cosines: Array,
    factors: TopicFactors,
    kappa: float,
    workers: Workers,
) -> DocumentTerms:
    """Expand κ Σ_d ρ_d to first order in the moments of the topics."""
    derivatives = np.empty_like(cosines), np.empty_like(cosines)
    value, by_moment = _differentiate(concentrations, cosines, factors, kappa, workers, derivatives)
    by_cosine, by_gram = derivatives
    coupling = by_gram.T @ concentrations
    coupling += coupling.T.copy()
    np.fill_diagonal(coupling, 0.0)
    linear = vectors.T @ by_cosine
    radial = factors.by_length(*by_moment)
    return DocumentTerms(value, np.ascontiguousarray(linear.T), coupling, radial)


def expected_fit(
    concentrations: Array, cosines: Array, factors: TopicFactors, kappa: float, workers: Workers
) -> float:
    """Return κ Σ_d ρ_d."""
    unused = np.empty_like(cosines), np.empty_like(cosines)
    return _differentiate(concentrations, cosines, factors, kappa, workers, unused)[0]


def _differentiate(
    concentrations: Array,
    cosines: Array,
    factors: TopicFactors,
    kappa: float,
    workers: Workers,
    derivatives: tuple[Array, Array],
) -> tuple[float, Array]:
    """Compute derivatives per document; return the sum and the derivatives for s and r."""
    by_cosine, by_gram = derivatives
    chunks = _chunks(len(cosines))
    by_moment = np.zeros((2, len(chunks), cosines.shape[1]))
    moments = factors.moments

    def run(i: int) -> float:
        part = chunks[i]
        sums = Sums(by_cosine[part], by_gram[part], by_moment[0, i], by_moment[1, i])
        return differentiate_by_topics.call(
            concentrations[part], cosines[part], moments, kappa, sums
        )

    return float(sum(workers.run(run, len(chunks)))), by_moment.sum(axis=1)


def _chunks(n: int) -> list[slice]:
    return parts_of(n, max(1, -(-n // CHUNK)))
