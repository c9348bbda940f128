"""Mixtures of von Mises–Fisher distributions by expectation maximisation."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import logsumexp

from pymc_geodesic.arguments import check_integers
from pymc_geodesic.distributions.special import (
    kappa_of_resultant_length,
    log_vmf_normalizer,
)
from pymc_geodesic.distributions.unit_points import unit_points
from pymc_geodesic.runtime.convergence import warn_of_last_pass

Array = NDArray[np.float64]

HARD_PASSES = 100
"""Passes of spherical k-means before a start, at most."""

SHARE_OF_EMPTY = 1e-12
"""Part of the points below which a component has none."""


class VMFMixtureFit(NamedTuple):
    """A mixture of von Mises–Fisher distributions, the heaviest component first.

    Attributes
    ----------
    weights : ndarray, shape (K,)
    mu : ndarray, shape (K, d)
        Mean directions.
    kappa : ndarray, shape (K,)
        Concentrations.
    log_likelihood : float
    probabilities : ndarray, shape (n, K)
        Of each point to belong to each component.
    """

    weights: Array
    mu: Array
    kappa: Array
    log_likelihood: float
    probabilities: Array


def _expect(points: Any, weights: Array, mu: Array, kappa: Array) -> tuple[Array, float]:
    """Probabilities of the components, and the log-likelihood."""
    with np.errstate(divide="ignore"):
        logp = np.log(weights) + log_vmf_normalizer(mu.shape[1], kappa)
    logp = logp + kappa * np.asarray(points @ mu.T)
    total = logsumexp(logp, axis=1, keepdims=True)
    return np.exp(logp - total), float(total.sum())


def _maximise(
    points: Any, probabilities: Array, mu: Array, *, shared_kappa: bool
) -> tuple[Array, Array, Array]:
    """Weights, mean directions and concentrations; an empty component keeps its direction."""
    mass = probabilities.sum(axis=0)
    sums = np.asarray((points.T @ probabilities).T)
    lengths = np.linalg.norm(sums, axis=1)
    is_empty = (mass <= SHARE_OF_EMPTY * len(probabilities)) | (lengths == 0.0)
    safe = np.where(is_empty, 1.0, lengths)
    directions = np.where(is_empty[:, None], mu, sums / safe[:, None])
    resultant = np.where(is_empty, 0.0, lengths / np.where(is_empty, 1.0, mass))
    if shared_kappa:
        resultant = np.full(len(mass), lengths.sum() / len(probabilities))
    return mass / mass.sum(), directions, kappa_of_resultant_length(mu.shape[1], resultant)


def _start(points: Any, n_components: int, rng: np.random.Generator) -> Array:
    """Distinct points as directions, far ones with larger probability, as k-means++ does."""
    chosen = [int(rng.integers(points.shape[0]))]
    distance = np.full(points.shape[0], np.inf)
    while len(chosen) < n_components:
        newest = points[[chosen[-1]]]
        cosine = points @ newest.T
        cosine = np.asarray(cosine.todense() if sparse.issparse(cosine) else cosine).ravel()
        distance = np.minimum(distance, np.maximum(1.0 - cosine, 0.0))
        distance[chosen] = 0.0
        total = distance.sum()
        shares = distance / total if total > 0 else None
        chosen.append(int(rng.choice(len(distance), p=shares)))
    start = points[chosen]
    return np.array(start.todense() if sparse.issparse(start) else start)


def _nearest(points: Any, mu: Array) -> Array:
    """One for the nearest direction of each point, zero for the others."""
    return np.eye(len(mu))[np.asarray(points @ mu.T).argmax(axis=1)]


def _hard_clusters(points: Any, mu: Array) -> Array:
    """Mean directions of the clusters that spherical k-means finds."""
    clusters = np.empty(0)
    for _ in range(HARD_PASSES):
        nearest = _nearest(points, mu)
        if np.array_equal(nearest, clusters):
            break
        clusters = nearest
        _, mu, _ = _maximise(points, clusters, mu, shared_kappa=True)
    return mu


def vmf_mixture_em(
    points: Any,
    n_components: int,
    *,
    shared_kappa: bool = False,
    n_restarts: int = 5,
    max_passes: int = 500,
    tolerance: float = 1e-9,
    random_seed: int | np.random.Generator | None = None,
) -> VMFMixtureFit:
    r"""Fit a mixture of von Mises–Fisher distributions by maximum likelihood.

    Alternates between the probabilities of the components

    .. math:: p_{ik} \propto w_k\, c_d(\kappa_k)\, e^{\kappa_k \mu_k \cdot x_i}

    and, with :math:`r_k = \sum_i p_{ik} x_i`, the maximum :math:`w_k = \sum_i p_{ik} / n`,
    :math:`\mu_k = r_k / \|r_k\|`, :math:`A_d(\kappa_k) = \|r_k\| / \sum_i p_{ik}`, which is solved
    for κ exactly. The best of several starts is returned.

    Parameters
    ----------
    points : array_like or scipy.sparse matrix, shape (n, d)
        Unit vectors in rows. A sparse matrix stays sparse.
    n_components : int
        K.
    shared_kappa : bool
        Whether all components have the same concentration,
        :math:`A_d(\kappa) = \sum_k \|r_k\| / n`.
    n_restarts : int
        Starts from points that were drawn as in k-means++, every other one by way of the clusters
        that spherical k-means finds from there.
    max_passes : int
        Passes over the points for each start, at most.
    tolerance : float
        Relative gain of the log-likelihood below which a start is over.
    random_seed : int or numpy.random.Generator, optional

    Returns
    -------
    VMFMixtureFit

    Raises
    ------
    ValueError
        If there are fewer points than components, points that are no unit vectors, or a number that
        is no positive integer.

    Warns
    -----
    ConvergenceWarning
        If the best start used up its passes.

    References
    ----------
    A. Banerjee, I. S. Dhillon, J. Ghosh, S. Sra (2005), Clustering on the Unit Hypersphere using
    von Mises–Fisher Distributions, algorithm 1 (soft-moVMF).

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.datasets import make_vmf_mixture
    >>> from pymc_geodesic.mixtures import vmf_mixture_em
    >>> points, _ = make_vmf_mixture(np.eye(3), 50.0, 3000, random_seed=1)
    >>> vmf_mixture_em(points, 3, random_seed=1).kappa.round()
    array([50., 50., 50.])
    """
    points = unit_points(points)
    check_integers(
        n_components=(n_components, 1), n_restarts=(n_restarts, 1), max_passes=(max_passes, 1)
    )
    if not 1 <= n_components <= points.shape[0]:
        raise ValueError(
            f"n_components must be between 1 and the number of points, {points.shape[0]}, got "
            f"{n_components}"
        )
    rng = np.random.default_rng(random_seed)
    best: VMFMixtureFit | None = None
    for restart in range(n_restarts):
        mu = _start(points, n_components, rng)
        if restart % 2 == 0:
            mu = _hard_clusters(points, mu)
        fit, gain = _one_start(points, mu, max_passes, tolerance, shared_kappa=shared_kappa)
        if best is None or fit.log_likelihood > best.log_likelihood:
            best, last_gain = fit, gain
    assert best is not None
    if last_gain > 0.0:
        unit = "added {:.2g} to the log-likelihood"
        warn_of_last_pass("vmf_mixture_em", max_passes, last_gain, unit)
    order = np.argsort(-best.weights, kind="stable")
    return VMFMixtureFit(
        best.weights[order],
        best.mu[order],
        best.kappa[order],
        best.log_likelihood,
        best.probabilities[:, order],
    )


def _one_start(
    points: Any, mu: Array, max_passes: int, tolerance: float, *, shared_kappa: bool
) -> tuple[VMFMixtureFit, float]:
    """Alternate between probabilities and parameters, from mean directions.

    Also return what the last pass has gained, 0 if that was no more than the tolerance.
    """
    probabilities = _nearest(points, mu)
    last = -np.inf
    for _ in range(max_passes):
        weights, mu, kappa = _maximise(points, probabilities, mu, shared_kappa=shared_kappa)
        probabilities, total = _expect(points, weights, mu, kappa)
        gain = total - last
        if gain <= tolerance * abs(total):
            gain = 0.0
            break
        last = total
    return VMFMixtureFit(weights, mu, kappa, total, probabilities), gain
