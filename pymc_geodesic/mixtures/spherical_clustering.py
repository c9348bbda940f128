"""Clustering of unit vectors: spherical k-means, and EM for von Mises–Fisher mixtures."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import logsumexp

from pymc_geodesic.arguments import check_integers
from pymc_geodesic.distributions.validation import unit_points
from pymc_geodesic.ops.bessel import kappa_of_resultant_length, log_vmf_normalizer
from pymc_geodesic.runtime.iterations import warn_not_converged

Array = NDArray[np.float64]

KMEANS_PASSES = 100
"""Largest number of k-means passes that initialize EM."""

EMPTY_WEIGHT = 1e-12
"""Weight below which a component counts as empty."""


class VMFMixtureFit(NamedTuple):
    """Maximum-likelihood fit of a mixture of von Mises–Fisher distributions.

    Components are sorted by weight in decreasing order.

    Attributes
    ----------
    weights : ndarray, shape (K,)
    mu : ndarray, shape (K, d)
        Mean directions.
    kappa : ndarray, shape (K,)
        Concentrations.
    log_likelihood : float
    probabilities : ndarray, shape (n, K)
        Posterior probability of each component for each point (responsibilities).
    """

    weights: Array
    mu: Array
    kappa: Array
    log_likelihood: float
    probabilities: Array


class SphericalKMeansFit(NamedTuple):
    """Clusters of unit vectors by spherical k-means.

    Attributes
    ----------
    centers : ndarray, shape (K, d)
        Unit vectors.
    labels : ndarray of int, shape (n,)
        Cluster of each point.
    """

    centers: Array
    labels: NDArray[np.int64]


def _expect(points: Any, weights: Array, mu: Array, kappa: Array) -> tuple[Array, float]:
    """E step: return the responsibilities and the log-likelihood."""
    with np.errstate(divide="ignore"):
        logp = np.log(weights) + log_vmf_normalizer(mu.shape[1], kappa)
    logp = logp + kappa * np.asarray(points @ mu.T)
    total = logsumexp(logp, axis=1, keepdims=True)
    return np.exp(logp - total), float(total.sum())


def _maximize(
    points: Any, probabilities: Array, mu: Array, *, shared_kappa: bool
) -> tuple[Array, Array, Array]:
    """M step: return weights, directions and concentrations; empty ones keep their direction."""
    mass = probabilities.sum(axis=0)
    sums = np.asarray((points.T @ probabilities).T)
    lengths = np.linalg.norm(sums, axis=1)
    is_empty = (mass <= EMPTY_WEIGHT * len(probabilities)) | (lengths == 0.0)
    safe = np.where(is_empty, 1.0, lengths)
    directions = np.where(is_empty[:, None], mu, sums / safe[:, None])
    resultant = np.where(is_empty, 0.0, lengths / np.where(is_empty, 1.0, mass))
    if shared_kappa:
        resultant = np.full(len(mass), lengths.sum() / len(probabilities))
    return mass / mass.sum(), directions, kappa_of_resultant_length(mu.shape[1], resultant)


def _assign_nearest(points: Any, mu: Array) -> Array:
    """Return the indicator matrix of the nearest direction of each point."""
    return np.eye(len(mu))[np.asarray(points @ mu.T).argmax(axis=1)]


def _initialize_by_kmeans(points: Any, mu: Array) -> Array:
    """Return the centers of spherical k-means."""
    clusters = np.empty(0)
    for _ in range(KMEANS_PASSES):
        nearest = _assign_nearest(points, mu)
        if np.array_equal(nearest, clusters):
            break
        clusters = nearest
        _, mu, _ = _maximize(points, clusters, mu, shared_kappa=True)
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
    for κ exactly. The restart with the largest likelihood is returned.

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
        Number of initializations by k-means++; every other one continues with spherical k-means.
    max_passes : int
        Maximum number of passes over the points for each restart.
    tolerance : float
        Relative increase of the log-likelihood at which EM stops.
    random_seed : int or numpy.random.Generator, optional

    Returns
    -------
    VMFMixtureFit

    Raises
    ------
    ValueError
        If there are fewer points than components, points that are not unit vectors, or a number
        that is not a positive integer.

    Warns
    -----
    ConvergenceWarning
        If the best restart reached ``max_passes``.

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
        mu = _kmeans_plus_plus(points, n_components, rng)
        if restart % 2 == 0:
            mu = _initialize_by_kmeans(points, mu)
        fit, gain = _run_em(points, mu, max_passes, tolerance, shared_kappa=shared_kappa)
        if best is None or fit.log_likelihood > best.log_likelihood:
            best, last_gain = fit, gain
    assert best is not None
    if last_gain > 0.0:
        unit = "added {:.2g} to the log-likelihood"
        warn_not_converged("vmf_mixture_em", max_passes, last_gain, unit)
    order = np.argsort(-best.weights, kind="stable")
    return VMFMixtureFit(
        best.weights[order],
        best.mu[order],
        best.kappa[order],
        best.log_likelihood,
        best.probabilities[:, order],
    )


def _run_em(
    points: Any, mu: Array, max_passes: int, tolerance: float, *, shared_kappa: bool
) -> tuple[VMFMixtureFit, float]:
    """Run EM from initial mean directions.

    Also return the increase of the log-likelihood in the last pass, 0 after convergence.
    """
    probabilities = _assign_nearest(points, mu)
    last = -np.inf
    for _ in range(max_passes):
        weights, mu, kappa = _maximize(points, probabilities, mu, shared_kappa=shared_kappa)
        probabilities, total = _expect(points, weights, mu, kappa)
        gain = total - last
        if gain <= tolerance * abs(total):
            gain = 0.0
            break
        last = total
    return VMFMixtureFit(weights, mu, kappa, total, probabilities), gain


def spherical_kmeans(
    points: np.ndarray | sparse.csr_matrix,
    n_clusters: int,
    *,
    n_restarts: int = 5,
    max_passes: int = 100,
    random_seed: int | np.random.Generator | None = None,
) -> SphericalKMeansFit:
    r"""Cluster unit vectors by spherical k-means.

    Alternates between the assignment of each point to the nearest center and the update of each
    center to the mean direction of its points, which never decreases
    :math:`\sum_i x_i \cdot c_{z_i}`. The initialization is k-means++ with the distance
    :math:`1 - \cos`, and the best of the restarts is returned. An empty cluster is moved to the
    point with the smallest cosine.

    Parameters
    ----------
    points : numpy.ndarray or scipy.sparse matrix, shape (n, d)
        Unit vectors in rows.
    n_clusters : int
        Number of clusters K.
    n_restarts : int
        Number of initializations.
    max_passes : int
        Maximum number of passes over the points for each restart.
    random_seed : int or numpy.random.Generator, optional

    Returns
    -------
    SphericalKMeansFit
        A tuple of ``centers`` (K, d) and ``labels`` (n,).

    Raises
    ------
    ValueError
        If points are not unit vectors, there are fewer points than clusters, or a number is not a
        positive integer.

    Warns
    -----
    ConvergenceWarning
        If the best restart reached ``max_passes``.

    References
    ----------
    I. S. Dhillon, D. S. Modha (2001), Concept Decompositions for Large Sparse Text Data Using
    Clustering.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.datasets import make_vmf_mixture
    >>> from pymc_geodesic.mixtures import spherical_kmeans
    >>> points, component = make_vmf_mixture(np.eye(3), 50.0, 300, random_seed=1)
    >>> fit = spherical_kmeans(points, 3, random_seed=1)
    >>> len(set(zip(component.tolist(), fit.labels.tolist())))
    3
    """
    points = unit_points(points)
    check_integers(
        n_clusters=(n_clusters, 1), n_restarts=(n_restarts, 1), max_passes=(max_passes, 1)
    )
    if points.shape[0] < n_clusters:
        raise ValueError(
            f"n_clusters={n_clusters} exceeds the {points.shape[0]} points. Use fewer clusters."
        )
    rng = np.random.default_rng(random_seed)
    best_fit = -np.inf
    for _ in range(n_restarts):
        fit, total, changed = _run_kmeans(points, n_clusters, max_passes, rng)
        if total > best_fit:
            best, best_fit, n_changed = fit, total, changed
    if n_changed:
        unit = "changed the cluster of {} points"
        warn_not_converged("spherical_kmeans", max_passes, n_changed, unit)
    return best


def _run_kmeans(
    points: np.ndarray | sparse.csr_matrix,
    n_clusters: int,
    max_passes: int,
    rng: np.random.Generator,
) -> tuple[SphericalKMeansFit, float, int]:
    """Run one initialization; also return the sum of cosines and the changes of the last pass."""
    centers = _kmeans_plus_plus(points, n_clusters, rng)
    labels = np.full(points.shape[0], -1)
    for _ in range(max_passes):
        cosine = points @ centers.T
        nearest = cosine.argmax(axis=1)
        largest = cosine.max(axis=1)
        empty = np.setdiff1d(np.arange(n_clusters), nearest)
        nearest[np.argsort(largest)[: len(empty)]] = empty
        n_changed = int(np.sum(nearest != labels))
        if not n_changed:
            break
        labels = nearest
        membership = sparse.csr_matrix(
            (np.ones(len(labels)), (labels, np.arange(len(labels)))),
            shape=(n_clusters, len(labels)),
        )
        centers = _dense(membership @ points)
        centers /= np.linalg.norm(centers, axis=1, keepdims=True)
    return SphericalKMeansFit(centers, labels), float(largest.sum()), n_changed


def _kmeans_plus_plus(
    points: np.ndarray | sparse.csr_matrix, n_clusters: int, rng: np.random.Generator
) -> Array:
    """Draw distinct points as centers by k-means++ with the distance 1 − cos."""
    chosen = [int(rng.integers(points.shape[0]))]
    distance = np.full(points.shape[0], np.inf)
    while len(chosen) < n_clusters:
        cosine = _dense(points @ points[[chosen[-1]]].T).ravel()
        distance = np.minimum(distance, np.maximum(1.0 - cosine, 0.0))
        distance[chosen] = 0.0
        total = distance.sum()
        if total > 0:
            chosen.append(int(rng.choice(len(distance), p=distance / total)))
        else:  # all other points are copies of centers
            rest = np.setdiff1d(np.arange(len(distance)), chosen)
            chosen.append(int(rng.choice(rest)))
    return _dense(points[chosen])


def _dense(matrix: Any) -> Array:
    """Return a dense copy of an array or a sparse matrix."""
    return matrix.toarray() if sparse.issparse(matrix) else np.array(matrix)
