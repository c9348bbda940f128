"""Mixtures of von Mises-Fisher distributions to draw data from."""

import numpy as np
from scipy.stats import vonmises_fisher

# The directions of section 5.2 of the SGGMC paper, angles on the circle.
PAPER_ANGLES = (-np.pi / 24, np.pi / 8)


def make_vmf_mixture(
    means: np.ndarray,
    kappa: float | np.ndarray,
    n: int,
    *,
    weights: np.ndarray | None = None,
    random_seed: int | np.random.Generator | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    r"""Draw points from a finite mixture of von Mises-Fisher distributions.

    .. math:: x_i \sim \sum_{k=1}^K w_k\, \mathrm{vMF}(x_i \mid \mu_k, \kappa_k)

    Parameters
    ----------
    means : array_like, shape (K, d)
        Mean directions of the components, unit vectors.
    kappa : float or array_like, shape (K,)
        Concentrations, positive.
    n : int
        Number of points.
    weights : array_like, shape (K,), optional
        Probabilities of the components; equal by default.
    random_seed : int or numpy.random.Generator, optional
        Seed.

    Returns
    -------
    points : numpy.ndarray, shape (n, d)
        Unit vectors.
    component : numpy.ndarray of int, shape (n,)
        The component that each point was drawn from.

    Raises
    ------
    ValueError
        If a mean is not of unit length.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.datasets import make_vmf_mixture
    >>> points, component = make_vmf_mixture(np.eye(3), 50.0, 6, random_seed=0)
    >>> np.linalg.norm(points, axis=1)
    array([1., 1., 1., 1., 1., 1.])
    >>> np.array_equal(points.argmax(axis=1), component)
    True
    """
    means = np.asarray(means, dtype=np.float64)
    if not np.allclose(np.linalg.norm(means, axis=-1), 1.0):
        raise ValueError("`means` must hold unit vectors: divide each row by its norm.")
    kappa = np.broadcast_to(np.asarray(kappa, dtype=np.float64), len(means))
    rng = np.random.default_rng(random_seed)
    component = rng.choice(len(means), size=n, p=weights)
    points = np.empty((n, means.shape[1]))
    for k in range(len(means)):
        rows = np.flatnonzero(component == k)
        if len(rows):
            points[rows] = vonmises_fisher(means[k], kappa[k]).rvs(len(rows), random_state=rng)
    return points, component


def make_shared_mean_mixture(
    n: int = 100,
    *,
    angles: tuple[float, float] = PAPER_ANGLES,
    kappa: float = 20.0,
    random_seed: int | np.random.Generator | None = None,
) -> np.ndarray:
    r"""Draw the synthetic data of section 5.2 of the SGGMC paper.

    .. math:: x_i \sim \tfrac12 \mathrm{vMF}(v_1, \kappa) + \tfrac12 \mathrm{vMF}(\mu, \kappa),
              \qquad \mu = \frac{v_1 + v_2}{\lVert v_1 + v_2 \rVert},

    on the circle. Because :math:`v_2` enters only through the middle :math:`\mu`, the posterior
    of :math:`(v_1, v_2)` has two modes of equal weight, with angles near :math:`(-π/24, π/8)`
    and :math:`(π/24, -π/8)` under the paper's prior (appendix D).

    Parameters
    ----------
    n : int
        Number of points; 100 in the paper.
    angles : tuple of float
        Angles of :math:`v_1` and :math:`v_2` in radians.
    kappa : float
        Concentration of both components.
    random_seed : int or numpy.random.Generator, optional
        Seed.

    Returns
    -------
    numpy.ndarray, shape (n, 2)
        Unit vectors.

    References
    ----------
    .. [1] C. Liu, J. Zhu, Y. Song. "Stochastic Gradient Geodesic MCMC Methods", NeurIPS 2016,
       section 5.2, appendices D and F.2. The authors draw their points by GMC; these are
       independent draws from the same density.

    Examples
    --------
    >>> from pymc_geodesic.datasets import make_shared_mean_mixture
    >>> make_shared_mean_mixture(random_seed=1).shape
    (100, 2)
    """
    v1, v2 = (np.array([np.cos(angle), np.sin(angle)]) for angle in angles)
    middle = (v1 + v2) / np.linalg.norm(v1 + v2)
    points, _ = make_vmf_mixture(np.stack([v1, middle]), kappa, n, random_seed=random_seed)
    return points
