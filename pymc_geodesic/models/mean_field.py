"""Mean-field inference of spherical admixtures: passes over all documents, or minibatches."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pymc_geodesic.distributions.special import log_vmf_normalizer
from pymc_geodesic.kernels.topics.mixed_directions import Climb
from pymc_geodesic.models.topic_directions import (
    AdmixturePrior,
    TopicLaws,
    bound_of_topics,
    climb,
    expected_fit,
    natural_target,
    swept_target,
    terms_of,
)
from pymc_geodesic.runtime.threads import Workers

__all__ = ["MeanField"]

Array = NDArray[np.float64]

HALVINGS = 20
"""Of a step of the topics that would lower the bound, at most."""

GAIN = 1e-2
"""Nats below which the proportions of a document are left as they are."""


class MeanField:
    """Laws of topics and of proportions, and how they are improved.

    Parameters
    ----------
    vectors : ndarray or csr_array, shape (D, V)
    prior : AdmixturePrior
    laws : TopicLaws
        To start from.
    local_steps : int
        Steps of the proportions of a document at each visit, at most.

    Attributes
    ----------
    laws : TopicLaws
    concentrations : ndarray, shape (D, K)
        Of the Dirichlet laws of the proportions.
    """

    def __init__(
        self, vectors: Any, prior: AdmixturePrior, laws: TopicLaws, local_steps: int
    ) -> None:
        self.vectors, self.prior, self.laws = vectors, prior, laws
        self.concentrations = np.tile(prior.alpha, (vectors.shape[0], 1))
        self._settings = Climb(prior.kappa, GAIN, local_steps)
        self._workers = Workers()
        self._log_c = float(log_vmf_normalizer(vectors.shape[1], prior.kappa))
        self._step = 1.0

    def pass_over_all(self) -> float:
        """Improve all proportions, then the topics; return the bound, which does not fall."""
        with self._workers.one_blas_thread():
            cosines = _cosines(self.vectors, self.laws)
            own, alpha = self.concentrations, self.prior.alpha
            of_documents = climb(own, cosines, self.laws, alpha, self._settings, self._workers)
            of_documents += self._improve_topics(cosines)
        return of_documents + len(cosines) * self._log_c + bound_of_topics(self.prior, self.laws)

    def _improve_topics(self, cosines: Array) -> float:
        """Move the topics given all proportions; return what the fit of the documents gains."""
        kappa, workers = self.prior.kappa, self._workers
        terms = terms_of(self.vectors, self.concentrations, cosines, self.laws, kappa, workers)
        before = terms.value + bound_of_topics(self.prior, self.laws)
        target = swept_target(self.prior, self.laws, terms)
        for _ in range(HALVINGS):
            natural = (1.0 - self._step) * self.laws.natural + self._step * target
            moved = TopicLaws(natural)
            products = _cosines(self.vectors, moved)
            fit = expected_fit(self.concentrations, products, moved, kappa, workers)
            if fit + bound_of_topics(self.prior, moved) >= before:
                self.laws = moved
                self._step = min(1.0, 2.0 * self._step)
                return fit - terms.value
            self._step *= 0.5
        return 0.0

    def visit(self, rows: NDArray[np.intp], step_size: float) -> float:
        """Take a natural-gradient step for a minibatch; return an estimate of the bound."""
        with self._workers.one_blas_thread():
            return self._visit(rows, step_size)

    def _visit(self, rows: NDArray[np.intp], step_size: float) -> float:
        vectors, laws, prior = self.vectors[rows], self.laws, self.prior
        factor = self.vectors.shape[0] / len(rows)
        cosines = _cosines(vectors, laws)
        own = self.concentrations[rows]
        gained = climb(own, cosines, laws, prior.alpha, self._settings, self._workers)
        self.concentrations[rows] = own
        terms = terms_of(vectors, own, cosines, laws, prior.kappa, self._workers)
        target = natural_target(prior, laws, terms.scaled(factor))
        self.laws = TopicLaws((1.0 - step_size) * laws.natural + step_size * target)
        return factor * (gained + len(rows) * self._log_c) + bound_of_topics(prior, laws)


def _cosines(vectors: Any, laws: TopicLaws) -> Array:
    """Products v_d · b_k, shape (n, K)."""
    return np.ascontiguousarray(vectors @ np.ascontiguousarray(laws.mean.T))
