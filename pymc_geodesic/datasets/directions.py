"""Data on directions: measured unit vectors, and draws from von Mises–Fisher mixtures."""

import os
from dataclasses import dataclass

import numpy as np
from scipy.stats import vonmises_fisher

from pymc_geodesic.datasets.folder import read_arrays

PAPER_ANGLES = (-np.pi / 24, np.pi / 8)
"""Angles of the directions of section 5.2 of the SGGMC paper, radians."""

DIRECTIONAL = (
    "The file 'directional.npz' holds the arrays `comets` (3798, 3) and `planets` (9, 3), unit "
    "normals (sin i sin om, -sin i cos om, cos i) of the orbits in the data sets `comets` and "
    "`planets` of the R package sphunif (https://cran.r-project.org/package=sphunif; from the JPL "
    "Small-Body Database), and `wind_angle` (310,), radians, the data set `wind` of the R package "
    "circular (https://cran.r-project.org/package=circular). Export them from R and store them "
    "with `numpy.savez`."
)


@dataclass(frozen=True)
class Directional:
    """Three samples of directions.

    Parameters
    ----------
    comets : numpy.ndarray, shape (3798, 3)
        Unit normals of comet orbits.
    planets : numpy.ndarray, shape (9, 3)
        Unit normals of the orbits of the planets and Pluto.
    wind : numpy.ndarray, shape (310, 2)
        Wind directions as points (cos a, sin a) on the circle.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.datasets import Directional
    >>> Directional(comets=np.eye(3), planets=np.eye(3), wind=np.eye(2)).wind.shape
    (2, 2)
    """

    comets: np.ndarray
    planets: np.ndarray
    wind: np.ndarray


def load_directional(data_home: str | os.PathLike | None = None) -> Directional:
    """Load orbit normals of comets and planets, and wind directions.

    Parameters
    ----------
    data_home : path-like, optional
        Folder that holds ``directional.npz``; by default the one named by the environment
        variable ``PYMC_GEODESIC_DATA``.

    Returns
    -------
    Directional
        Unit vectors in double precision.

    Raises
    ------
    FileNotFoundError
        If the file is missing; the message states where the data come from.

    Examples
    --------
    >>> from pymc_geodesic.datasets import load_directional
    >>> load_directional("nowhere")
    Traceback (most recent call last):
        ...
    FileNotFoundError: There is no file 'directional.npz' in the data folder 'nowhere'. ...
    """
    arrays = read_arrays("directional.npz", data_home=data_home, origin=DIRECTIONAL)
    angle = arrays["wind_angle"].astype(np.float64)
    return Directional(
        comets=_unit_rows(arrays["comets"]),
        planets=_unit_rows(arrays["planets"]),
        wind=np.column_stack([np.cos(angle), np.sin(angle)]),
    )


def _unit_rows(rows: np.ndarray) -> np.ndarray:
    """Scale rows stored in single precision to unit length in double precision."""
    rows = rows.astype(np.float64)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


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
        raise ValueError("`means` must contain unit vectors. Divide each row by its norm.")
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
