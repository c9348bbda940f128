"""Scales and correlations that draws and their gradients ask for."""

from __future__ import annotations

import math

import numpy as np

from pymc_geodesic.tuning.metric import LowRank

__all__ = [
    "diagonal_scale",
    "geometric_mean",
    "length_scale",
    "low_rank_factor",
    "whitening_factor",
]

_LEAST_VARIANCE = 1e-5
"""Added to variances in units of the diagonal scales: directions that were not seen keep theirs."""

_SMALLEST, _LARGEST = 1e-150, 1e150

MOST_DIRECTIONS, MOST_PROPOSED = 10, 20
"""Directions that a diagonal factor is corrected in, and such as are looked at."""

DRAWS_PER_DIRECTION = 6
"""Draws from which one more direction is proposed."""

UNUSUAL = 1.5
"""Ratio of variances from which a direction counts."""


def geometric_mean(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    r"""Factor F of the geometric mean FᵀF of A and B⁻¹, with A = aᵀa and B = bᵀb.

    It is the positive definite X with X B X = A. With a singular value decomposition
    :math:`b a^\top = U S V^\top` it is :math:`a^\top V S^{-1} V^\top a`. Products of A and B
    have the fourth power of a long way that draws came, which leaves nothing of the directions
    across it; those of their factors have the square.

    Parameters
    ----------
    a, b : ndarray, shape (d, d)

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.tuning.whitening import geometric_mean
    >>> factor = geometric_mean(np.diag([2.0, 1.0]), np.diag([1 / 3, 1.0]))
    >>> factor.T @ factor
    array([[6., 0.],
           [0., 1.]])
    """
    _, values, turned = np.linalg.svd(b @ a.T)
    rounding = len(a) * np.finfo(float).eps * values.max(initial=0.0)
    values = np.maximum(values, max(rounding, np.finfo(float).tiny))
    return (turned @ a) / np.sqrt(values)[:, np.newaxis]


def _root(rows: np.ndarray) -> np.ndarray:
    """Triangle R whose RᵀR is the mean square of rows of shape (n, d), and a little more."""
    n, d = rows.shape
    ridge = math.sqrt(_LEAST_VARIANCE) * np.eye(d)
    return np.linalg.qr(np.concatenate([rows / math.sqrt(n), ridge]), mode="r")


def diagonal_scale(x: np.ndarray, gradients: np.ndarray) -> np.ndarray:
    """Scale of every coordinate by itself, sqrt(sd(x) / sd(g)); see `whitening_factor`."""
    spread, steepness = x.std(axis=0), gradients.std(axis=0)
    known = (spread > 0.0) & (steepness > 0.0)
    scale = np.where(spread > 0.0, spread, 1.0)  # what a constant gradient leaves to the draws
    scale[known] = np.sqrt(spread[known] / steepness[known])
    return np.clip(scale, _SMALLEST, _LARGEST)


def _scaled(
    x: np.ndarray, gradients: np.ndarray, scale: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Deviations of positions and gradients in units of the diagonal scales."""
    return (x - x.mean(axis=0)) / scale, (gradients - gradients.mean(axis=0)) * scale


def _stretches(positions: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Variances and directions of the geometric mean of the two covariances."""
    _, scales, directions = np.linalg.svd(geometric_mean(_root(positions), _root(scores)))
    return np.maximum(scales**2, np.finfo(float).tiny), directions.T


def whitening_factor(x: np.ndarray, gradients: np.ndarray) -> np.ndarray:
    r"""Factor L of the metric that draws and their gradients ask for.

    The Gaussian law whose scores are closest to the gradients seen, in mean squares measured by
    its own covariance, has

    .. math:: L L^\top = \operatorname{cov}(x) \,\#\, \operatorname{cov}(g)^{-1} ,

    the geometric mean. For a normal posterior that is its covariance exactly, however badly the
    draws have explored it, because g = −Σ⁻¹(x − μ) everywhere: d + 1 points of a trajectory
    suffice. Draws alone would need to have explored it already.

    Parameters
    ----------
    x, gradients : ndarray, shape (n, d)
        Positions and gradients of the log-density there.

    Returns
    -------
    ndarray, shape (d, d)

    References
    ----------
    Seyboldt, Carlson, Carpenter (2024), Preconditioning Hamiltonian Monte Carlo by minimizing
    Fisher divergence.
    """
    n, d = x.shape
    scale = diagonal_scale(x, gradients)
    if n < 3 or d == 0:
        return np.diag(scale)
    positions, scores = _scaled(x, gradients, scale)
    basis = np.eye(d)
    if 2 * n < d + 2:  # what was not seen stays as it is
        basis, _ = np.linalg.qr(np.concatenate([positions, scores]).T)
    values, vectors = _stretches(positions @ basis, scores @ basis)
    directions = basis @ vectors
    stretch = (directions * (np.sqrt(values) - 1.0)) @ directions.T
    return scale[:, np.newaxis] * (np.eye(d) + stretch)


def low_rank_factor(x: np.ndarray, gradients: np.ndarray) -> LowRank:
    """Diagonal factor with a few directions in which scales differ much from it.

    Every other draw proposes directions: those in which `whitening_factor` would stretch most. The
    draws in between say how much, and whether at all: a direction that a few draws of many numbers
    have by chance is not one of others. Then the diagonal is found again from what is left beside
    these directions, which made the scales of single coordinates larger, and once more directions.

    Parameters
    ----------
    x, gradients : ndarray, shape (n, d)
        Positions and gradients of the log-density there.

    Returns
    -------
    LowRank
        With ten directions at most, and none from fewer than a dozen draws.

    References
    ----------
    Seyboldt, Carlson, Carpenter (2024), Preconditioning Hamiltonian Monte Carlo by minimizing
    Fisher divergence, section 3.3.
    """
    n, d = x.shape
    scale = diagonal_scale(x, gradients)
    n_proposed = min(MOST_PROPOSED, n // DRAWS_PER_DIRECTION, d)
    if n_proposed < 2:
        return LowRank(scale, np.empty((d, 0)), np.empty(0))
    positions, scores = _scaled(x, gradients, scale)
    _, directions, _ = _unusual_directions(positions, scores, n_proposed)
    if directions.size:
        beside = [each - (each @ directions) @ directions.T for each in (positions, scores)]
        scale = scale * diagonal_scale(*beside)
        positions, scores = _scaled(x, gradients, scale)
    level, directions, values = _unusual_directions(positions, scores, n_proposed)
    return LowRank(math.sqrt(level) * scale, directions, np.sqrt(values / level))


def _unusual_directions(
    positions: np.ndarray, scores: np.ndarray, n_proposed: int
) -> tuple[float, np.ndarray, np.ndarray]:
    """Variance of most directions, directions whose variance is another, and their variances."""
    basis, _ = np.linalg.qr(np.concatenate([positions[::2], scores[::2]]).T)
    values, vectors = _stretches(positions[::2] @ basis, scores[::2] @ basis)
    level = float(np.exp(np.median(np.log(values))))
    proposed = basis @ vectors[:, np.argsort(np.abs(np.log(values / level)))[-n_proposed:]]
    values, vectors = _stretches(positions[1::2] @ proposed, scores[1::2] @ proposed)
    unusual = np.abs(np.log(values / level))
    kept = np.argsort(unusual)[-MOST_DIRECTIONS:]
    kept = kept[unusual[kept] > math.log(UNUSUAL)]
    return level, proposed @ vectors[:, kept], values[kept]


def length_scale(x: np.ndarray, gradients: np.ndarray, dim: int, longest: float = 1.0) -> float:
    r"""Length s in which a posterior on a manifold varies.

    What `whitening_factor` is to a matrix, with one number for all directions,

    .. math:: s^4 = \frac{E|x - \bar x|^2}{E|g|^2} .

    Parameters
    ----------
    x, gradients : ndarray, shape (n, size)
        Points, and tangential gradients of the log-density there.
    dim : int
        Dimension of the manifold.
    longest : float
        Bound of the length; 1 on compact manifolds.
    """
    spread = np.mean(np.sum((x - x.mean(axis=0)) ** 2, axis=1)) / dim
    steepness = np.mean(np.sum(gradients**2, axis=1)) / dim
    if not (np.isfinite(spread) and np.isfinite(steepness)) or spread == 0.0 or steepness == 0.0:
        return 1.0
    return float(min((spread / steepness) ** 0.25, longest))
