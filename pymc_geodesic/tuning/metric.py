r"""Coordinates in which a posterior has about the same scale in all directions.

Euclidean coordinates change by x = c + L z, so that a posterior with covariance L Lᵀ becomes one
with covariance I. On a compact manifold a matrix would bend the geodesics, so that each variable
there has one number, the length that its velocities are multiplied by.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

__all__ = [
    "LARGEST_DENSE",
    "Metric",
    "diagonal_metric",
    "geometric_mean",
    "length_scale",
    "unit_metric",
    "whitening_factor",
]

LARGEST_DENSE = 500
"""Euclidean coordinates up to which a metric takes correlations into account by default."""

_LEAST_VARIANCE = 1e-5
"""Added to variances in units of the diagonal scales: directions that were not seen keep theirs."""

_SMALLEST, _LARGEST = 1e-150, 1e150


@dataclass(frozen=True, eq=False)
class Metric:
    """A change of Euclidean coordinates.

    Attributes
    ----------
    centre : ndarray, shape (d,)
        c, the origin of the new coordinates.
    factor : ndarray, shape (d, d) or (d,)
        L, or its diagonal.
    lengths : ndarray, shape (n,)
        One for each of the variables on a compact manifold.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.tuning.metric import Metric
    >>> metric = Metric(np.array([1.0, 0.0]), np.array([[2.0, 0.0], [1.0, 1.0]]))
    >>> metric.to_position(np.array([1.0, 1.0]))
    array([3., 2.])
    >>> metric.from_position(np.array([3.0, 2.0]))
    array([1., 1.])
    """

    centre: np.ndarray
    factor: np.ndarray
    lengths: np.ndarray = field(default_factory=lambda: np.empty(0))

    @property
    def is_dense(self) -> bool:
        """Whether coordinates are mixed."""
        return self.factor.ndim == 2

    def to_position(self, z: np.ndarray) -> np.ndarray:
        """Return c + L z for one point or rows of points."""
        return self.centre + (z @ self.factor.T if self.is_dense else z * self.factor)

    def from_position(self, x: np.ndarray) -> np.ndarray:
        """Return L⁻¹ (x − c)."""
        away = x - self.centre
        return np.linalg.solve(self.factor, away.T).T if self.is_dense else away / self.factor

    def to_gradient(self, g: np.ndarray) -> np.ndarray:
        """Return Lᵀ g, the gradient in the new coordinates."""
        return g @ self.factor if self.is_dense else g * self.factor

    def rotated(self, rotation: np.ndarray) -> Metric:
        """Return the metric with factor L Q, which whitens as well for orthogonal Q."""
        return Metric(self.centre, self.factor @ rotation, self.lengths)

    def moved(self, centre: np.ndarray) -> Metric:
        """Return the metric around another centre."""
        return Metric(np.array(centre), self.factor, self.lengths)


def unit_metric(size: int, n_lengths: int = 0) -> Metric:
    """Coordinates as they are."""
    return Metric(np.zeros(size), np.ones(size), np.ones(n_lengths))


def diagonal_metric(centre: np.ndarray, gradient: np.ndarray) -> Metric:
    """First guess from one gradient: a scale of 1/sqrt(|g|) for each coordinate, at most 1.

    A posterior with scale s whose start is some s away has a gradient of order 1/s; farther away
    the scale is underestimated, which is the safe side, until draws have been seen.
    """
    scale = 1.0 / np.sqrt(np.maximum(np.abs(gradient), 1.0))
    return Metric(np.array(centre), scale)


def geometric_mean(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the geometric mean A # B of two positive definite matrices.

    It is the positive definite X with X A⁻¹ X = B.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.tuning.metric import geometric_mean
    >>> geometric_mean(np.diag([4.0, 1.0]), np.diag([9.0, 1.0]))
    array([[6., 0.],
           [0., 1.]])
    """
    values, vectors = np.linalg.eigh(a)
    values = np.maximum(values, np.finfo(float).tiny)
    root = (vectors * np.sqrt(values)) @ vectors.T
    inverse_root = (vectors / np.sqrt(values)) @ vectors.T
    inner = inverse_root @ b @ inverse_root
    inner_values, inner_vectors = np.linalg.eigh(0.5 * (inner + inner.T))
    inner_root = (inner_vectors * np.sqrt(np.maximum(inner_values, 0.0))) @ inner_vectors.T
    return root @ inner_root @ root


def _diagonal_scale(x: np.ndarray, gradients: np.ndarray) -> np.ndarray:
    spread, steepness = x.std(axis=0), gradients.std(axis=0)
    known = (spread > 0.0) & (steepness > 0.0)
    scale = np.where(spread > 0.0, spread, 1.0)  # what a constant gradient leaves to the draws
    scale[known] = np.sqrt(spread[known] / steepness[known])
    return np.clip(scale, _SMALLEST, _LARGEST)


def whitening_factor(
    x: np.ndarray, gradients: np.ndarray, *, dense: bool = True, n_directions: int | None = None
) -> np.ndarray:
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
    dense : bool
        Whether to take correlations into account.
    n_directions : int, optional
        With it, only so many directions whose scale differs most from the diagonal are kept.

    Returns
    -------
    ndarray, shape (d, d) or (d,)

    References
    ----------
    Seyboldt, Carlson, Carpenter (2024), Preconditioning Hamiltonian Monte Carlo by minimizing
    Fisher divergence.
    """
    n, d = x.shape
    scale = _diagonal_scale(x, gradients)
    if not dense or n < 3 or d == 0:
        return scale
    positions = (x - x.mean(axis=0)) / scale
    scores = (gradients - gradients.mean(axis=0)) * scale
    if 2 * n < d + 2:  # what was not seen stays as it is
        basis, _ = np.linalg.qr(np.concatenate([positions, scores]).T)
    else:
        basis = np.eye(d)
    positions, scores = positions @ basis, scores @ basis
    ridge = _LEAST_VARIANCE * np.eye(basis.shape[1])
    values, vectors = np.linalg.eigh(scores.T @ scores / n + ridge)
    inverse = (vectors / values) @ vectors.T
    values, vectors = np.linalg.eigh(geometric_mean(positions.T @ positions / n + ridge, inverse))
    values = np.maximum(values, np.finfo(float).tiny)
    if n_directions is not None and n_directions < values.size:
        unusual = np.argsort(np.abs(np.log(values)))[-n_directions:]
        values, vectors = values[unusual], vectors[:, unusual]
    directions = basis @ vectors
    stretch = (directions * (np.sqrt(values) - 1.0)) @ directions.T
    return scale[:, np.newaxis] * (np.eye(d) + stretch)


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
