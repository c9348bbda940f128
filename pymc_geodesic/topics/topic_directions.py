"""Mean-field laws of topics that are directions, and the bound they give on the evidence."""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pymc_geodesic.distributions.special import (
    log_vmf_normalizer,
    mean_resultant_length,
    mean_resultant_length_slope,
)
from pymc_geodesic.runtime.threads import Workers, parts_of
from pymc_geodesic.topics.mixed_directions import (
    Climb,
    Sums,
    TopicMoments,
    climb_proportions,
    differentiate_by_topics,
)

Array = NDArray[np.float64]

CHUNK = 25
"""Documents that one call of a kernel sees: sums depend on it, not on the number of cores."""

SWEEPS = 3
"""Rounds over the topics that propose a batch update."""


class AdmixturePrior(NamedTuple):
    """Numbers of a spherical admixture model: m, α of each topic, κ, σ and κ0."""

    mean: Array
    alpha: Array
    kappa: float
    sigma: float
    kappa0: float


class TopicLaws:
    r"""Independent laws :math:`\text{vMF}(\mu_k, \xi_k)` of the topics.

    Parameters
    ----------
    natural : ndarray, shape (K, V)
        η_k = ξ_k μ_k, none of them zero.

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
        """What documents need to know; E ββᵀ of a von Mises–Fisher law is (A/ξ)(I − Vμμᵀ) + μμᵀ."""
        gram = self.mean @ self.mean.T
        np.fill_diagonal(gram, 1.0)
        isotropic = self.length / self.xi
        return TopicMoments(
            gram, isotropic, (1.0 - self.natural.shape[1] * isotropic) / self.length**2
        )

    def by_length(self, by_isotropic: Array, by_aligned: Array) -> Array:
        """Turn derivatives by s = A/ξ and r = (1 − V s) / A² into derivatives by A."""
        n_words = self.natural.shape[1]
        slope = mean_resultant_length_slope(n_words, self.xi)
        isotropic = self.length / self.xi
        isotropic_by_length = 1.0 / self.xi - isotropic / self.xi / slope
        aligned_by_length = -n_words * isotropic_by_length / self.length**2
        aligned_by_length -= 2.0 * (1.0 - n_words * isotropic) / self.length**3
        return by_isotropic * isotropic_by_length + by_aligned * aligned_by_length

    def entropy(self) -> float:
        """Of all topics, with respect to surface measure."""
        each = log_vmf_normalizer(self.natural.shape[1], self.xi) + self.xi * self.length
        return -float(each.sum())


def pull_of_mean(prior: AdmixturePrior, mean: Array) -> tuple[float, Array]:
    """Return ‖κ0 m + σ Σ b‖, the concentration of q(μ), and σ E μ."""
    total = prior.kappa0 * prior.mean + prior.sigma * mean.sum(axis=0)
    length = float(np.linalg.norm(total))
    resultant = float(mean_resultant_length(len(total), length))
    return length, prior.sigma * resultant * total / length


def bound_of_topics(prior: AdmixturePrior, laws: TopicLaws) -> float:
    """Part of the bound without documents, the best law of the corpus mean put in."""
    n_topics, n_words = laws.natural.shape
    length, _ = pull_of_mean(prior, laws.mean)
    constants = log_vmf_normalizer(n_words, np.array([prior.kappa0, prior.sigma, length]))
    return float(constants[0] + n_topics * constants[1] - constants[2]) + laws.entropy()


class DocumentTerms(NamedTuple):
    """κ Σ_d ρ_d as a function of the topics, to first order in the moments.

    Attributes
    ----------
    value : float
    pull : ndarray, shape (K, V)
        Derivative by b through v · b.
    coupling : ndarray, shape (K, K)
        Derivative by the matrix of b_j · b_k, symmetric, zero on the diagonal, times two.
    radial : ndarray, shape (K,)
        Derivative by A(ξ) through the second moments.
    """

    value: float
    pull: Array
    coupling: Array
    radial: Array

    def scaled(self, factor: float) -> DocumentTerms:
        """Let the documents stand for more."""
        return DocumentTerms(
            factor * self.value, factor * self.pull, factor * self.coupling, factor * self.radial
        )


def natural_target(prior: AdmixturePrior, laws: TopicLaws, terms: DocumentTerms) -> Array:
    """Differentiate the bound, but for the entropy, by b: η + s (target − η) is a natural step."""
    gradient = terms.pull + terms.coupling @ laws.mean
    gradient += terms.radial[:, None] * laws.direction
    return gradient + pull_of_mean(prior, laws.mean)[1]


def swept_target(prior: AdmixturePrior, laws: TopicLaws, terms: DocumentTerms) -> Array:
    """Set η of one topic after the other to its gradient at the present others.

    Topics that share documents move against each other, so that a step of all of them at once
    goes some K times too far.
    """
    natural, direction, mean = laws.natural.copy(), laws.direction.copy(), laws.mean.copy()
    for _ in range(SWEEPS):
        for k in range(len(natural)):
            natural[k] = terms.pull[k] + terms.coupling[k] @ mean
            natural[k] += terms.radial[k] * direction[k] + pull_of_mean(prior, mean)[1]
            moved = TopicLaws(natural[k : k + 1])
            direction[k], mean[k] = moved.direction[0], moved.mean[0]
    return natural


def climb(
    concentrations: Array,
    cosines: Array,
    laws: TopicLaws,
    alpha: Array,
    settings: Climb,
    workers: Workers,
) -> float:
    """Maximise the bounds of documents over their proportions; return their sum."""
    chunks = _chunks(len(concentrations))
    moments = laws.moments

    def run(i: int) -> float:
        part = chunks[i]
        return climb_proportions.call(concentrations[part], cosines[part], moments, alpha, settings)

    return float(sum(workers.run(run, len(chunks))))


def terms_of(
    vectors: Any,
    concentrations: Array,
    cosines: Array,
    laws: TopicLaws,
    kappa: float,
    workers: Workers,
) -> DocumentTerms:
    """Differentiate κ Σ_d ρ_d by the moments of the topics."""
    derivatives = np.empty_like(cosines), np.empty_like(cosines)
    value, by_moment = _differentiate(concentrations, cosines, laws, kappa, workers, derivatives)
    by_cosine, by_gram = derivatives
    coupling = by_gram.T @ concentrations
    coupling += coupling.T.copy()
    np.fill_diagonal(coupling, 0.0)
    pull = vectors.T @ by_cosine
    radial = laws.by_length(*by_moment)
    return DocumentTerms(value, np.ascontiguousarray(pull.T), coupling, radial)


def expected_fit(
    concentrations: Array, cosines: Array, laws: TopicLaws, kappa: float, workers: Workers
) -> float:
    """κ Σ_d ρ_d."""
    unused = np.empty_like(cosines), np.empty_like(cosines)
    return _differentiate(concentrations, cosines, laws, kappa, workers, unused)[0]


def _differentiate(
    concentrations: Array,
    cosines: Array,
    laws: TopicLaws,
    kappa: float,
    workers: Workers,
    derivatives: tuple[Array, Array],
) -> tuple[float, Array]:
    """Fill the derivatives of single documents; return the sum, and those by s and r."""
    by_cosine, by_gram = derivatives
    chunks = _chunks(len(cosines))
    by_moment = np.zeros((2, len(chunks), cosines.shape[1]))
    moments = laws.moments

    def run(i: int) -> float:
        part = chunks[i]
        sums = Sums(by_cosine[part], by_gram[part], by_moment[0, i], by_moment[1, i])
        return differentiate_by_topics.call(
            concentrations[part], cosines[part], moments, kappa, sums
        )

    return float(sum(workers.run(run, len(chunks)))), by_moment.sum(axis=1)


def _chunks(n: int) -> list[slice]:
    return parts_of(n, max(1, -(-n // CHUNK)))
