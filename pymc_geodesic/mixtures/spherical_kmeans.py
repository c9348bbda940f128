"""Clusters of directions: the baseline for models of directions."""

import numpy as np
from scipy import sparse

from pymc_geodesic.arguments import check_integers
from pymc_geodesic.distributions.unit_points import unit_points
from pymc_geodesic.runtime.convergence import warn_of_last_pass


def spherical_kmeans(
    points: np.ndarray | sparse.csr_matrix,
    n_clusters: int,
    *,
    n_restarts: int = 5,
    max_passes: int = 100,
    random_seed: int | np.random.Generator | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    r"""Cluster unit vectors by the cosine to the centre of their cluster.

    Alternates between giving each point to the nearest centre and setting each centre to the
    mean direction of its points, which never lowers :math:`\sum_i x_i \cdot c_{z_i}`. Starts are
    drawn as in k-means++ with the distance :math:`1 - \cos`; the best of the restarts is
    returned. A cluster that loses all its points restarts at the point that fits worst.

    Parameters
    ----------
    points : numpy.ndarray or scipy.sparse matrix, shape (n, d)
        Unit vectors in rows.
    n_clusters : int
        Number of clusters K.
    n_restarts : int
        Number of starts.
    max_passes : int
        Passes over the points per start, at most.
    random_seed : int or numpy.random.Generator, optional
        Seed.

    Returns
    -------
    centres : numpy.ndarray, shape (K, d)
        Unit vectors.
    cluster : numpy.ndarray of int, shape (n,)
        Cluster of each point.

    Raises
    ------
    ValueError
        If points are no unit vectors, there are fewer of them than clusters, or a number is no
        positive integer.

    Warns
    -----
    ConvergenceWarning
        If the best start used up its passes.

    References
    ----------
    .. [1] I. S. Dhillon, D. S. Modha. "Concept Decompositions for Large Sparse Text Data Using
       Clustering", Machine Learning 42, 2001.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.datasets import make_vmf_mixture
    >>> from pymc_geodesic.mixtures import spherical_kmeans
    >>> points, component = make_vmf_mixture(np.eye(3), 50.0, 300, random_seed=1)
    >>> centres, cluster = spherical_kmeans(points, 3, random_seed=1)
    >>> len(set(zip(component.tolist(), cluster.tolist())))
    3
    """
    points = unit_points(points)
    check_integers(
        n_clusters=(n_clusters, 1), n_restarts=(n_restarts, 1), max_passes=(max_passes, 1)
    )
    if points.shape[0] < n_clusters:
        raise ValueError(f"{points.shape[0]} points cannot form {n_clusters} clusters.")
    rng = np.random.default_rng(random_seed)
    best_fit = -np.inf
    for _ in range(n_restarts):
        found, labels, total, moved = _one_start(points, n_clusters, max_passes, rng)
        if total > best_fit:
            best_fit, centres, cluster, n_moved = total, found, labels, moved
    if n_moved:
        unit = "put {} points into other clusters"
        warn_of_last_pass("spherical_kmeans", max_passes, n_moved, unit)
    return centres, cluster


def _one_start(
    points: np.ndarray | sparse.csr_matrix,
    n_clusters: int,
    max_passes: int,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray, float, int]:
    """Run one start; return centres, clusters, sum of cosines, and how many points moved last."""
    centres = _spread(points, n_clusters, rng)
    cluster = np.full(points.shape[0], -1)
    for _ in range(max_passes):
        cosine = points @ centres.T
        nearest = cosine.argmax(axis=1)
        fit = cosine.max(axis=1)
        empty = np.setdiff1d(np.arange(n_clusters), nearest)
        nearest[np.argsort(fit)[: len(empty)]] = empty
        n_moved = int(np.sum(nearest != cluster))
        if not n_moved:
            break
        cluster = nearest
        membership = sparse.csr_matrix(
            (np.ones(len(cluster)), (cluster, np.arange(len(cluster)))),
            shape=(n_clusters, len(cluster)),
        )
        total = membership @ points
        centres = total if isinstance(total, np.ndarray) else total.toarray()
        centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    return centres, cluster, float(fit.sum()), n_moved


def _spread(
    points: np.ndarray | sparse.csr_matrix, n_clusters: int, rng: np.random.Generator
) -> np.ndarray:
    """Draw distinct points as centres, far ones with larger probability."""
    chosen = [int(rng.integers(points.shape[0]))]
    distance = np.full(points.shape[0], np.inf)
    while len(chosen) < n_clusters:
        newest = points[[chosen[-1]]]
        cosine = points @ newest.T
        cosine = cosine if isinstance(cosine, np.ndarray) else cosine.toarray()
        distance = np.minimum(distance, np.maximum(1.0 - cosine.ravel(), 0.0))
        distance[chosen] = 0.0
        if distance.sum() > 0:
            chosen.append(int(rng.choice(len(distance), p=distance / distance.sum())))
        else:
            # Every other point is a copy of a centre: take any of them.
            rest = np.setdiff1d(np.arange(len(distance)), chosen)
            chosen.append(int(rng.choice(rest)))
    centres = points[chosen]
    return np.array(centres) if isinstance(centres, np.ndarray) else centres.toarray()
