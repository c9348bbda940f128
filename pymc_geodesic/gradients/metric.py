r"""Coordinates in which a posterior has about the same scale in all directions.

Euclidean coordinates change by x = c + L z, so that a posterior with covariance L Lᵀ becomes one
with covariance I. On a compact manifold a matrix would bend the geodesics, so that each variable
there has one number, the length that its velocities are multiplied by.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True, eq=False)
class LowRank:
    r"""A diagonal matrix with a few directions of its own scale.

    .. math:: L = D\,(I + U (S - I) U^\top)

    Attributes
    ----------
    scale : ndarray, shape (d,)
        The diagonal of D.
    directions : ndarray, shape (d, k)
        U, orthonormal columns.
    stretch : ndarray, shape (k,)
        The diagonal of S.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.gradients.metric import LowRank
    >>> factor = LowRank(np.array([1.0, 2.0]), np.array([[0.6], [0.8]]), np.array([11.0]))
    >>> factor.dense()
    array([[ 4.6,  4.8],
           [ 9.6, 14.8]])
    """

    scale: np.ndarray
    directions: np.ndarray
    stretch: np.ndarray

    def _stretched(self, z: np.ndarray, by: np.ndarray) -> np.ndarray:
        """Return z with its parts along the directions multiplied."""
        return z + ((z @ self.directions) * (by - 1.0)) @ self.directions.T

    def times(self, z: np.ndarray) -> np.ndarray:
        """Return L z for one vector or rows of vectors."""
        return self._stretched(z, self.stretch) * self.scale

    def solved(self, x: np.ndarray) -> np.ndarray:
        """Return L⁻¹ x."""
        return self._stretched(x / self.scale, 1.0 / self.stretch)

    def transposed_times(self, g: np.ndarray) -> np.ndarray:
        """Return Lᵀ g."""
        return self._stretched(g * self.scale, self.stretch)

    def dense(self) -> np.ndarray:
        """Return L as a matrix, shape (d, d)."""
        return self.times(np.eye(self.scale.size)).T


Factor = np.ndarray | LowRank


@dataclass(frozen=True, eq=False)
class Metric:
    """A change of Euclidean coordinates.

    Attributes
    ----------
    centre : ndarray, shape (d,)
        c, the origin of the new coordinates.
    factor : ndarray, shape (d, d) or (d,), or LowRank
        L, or its diagonal.
    lengths : ndarray, shape (n,)
        One for each of the variables on a compact manifold.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.gradients.metric import Metric
    >>> metric = Metric(np.array([1.0, 0.0]), np.array([[2.0, 0.0], [1.0, 1.0]]))
    >>> metric.to_position(np.array([1.0, 1.0]))
    array([3., 2.])
    >>> metric.from_position(np.array([3.0, 2.0]))
    array([1., 1.])
    """

    centre: np.ndarray
    factor: Factor
    lengths: np.ndarray = field(default_factory=lambda: np.empty(0))

    @property
    def is_dense(self) -> bool:
        """Whether all coordinates are mixed."""
        return isinstance(self.factor, np.ndarray) and self.factor.ndim == 2

    def to_direction(self, z: np.ndarray) -> np.ndarray:
        """Return L z for one vector or rows of vectors."""
        if isinstance(self.factor, LowRank):
            return self.factor.times(z)
        return z @ self.factor.T if self.is_dense else z * self.factor

    def to_position(self, z: np.ndarray) -> np.ndarray:
        """Return c + L z for one point or rows of points."""
        return self.centre + self.to_direction(z)

    def from_position(self, x: np.ndarray) -> np.ndarray:
        """Return L⁻¹ (x − c)."""
        away = x - self.centre
        if isinstance(self.factor, LowRank):
            return self.factor.solved(away)
        return np.linalg.solve(self.factor, away.T).T if self.is_dense else away / self.factor

    def to_gradient(self, g: np.ndarray) -> np.ndarray:
        """Return Lᵀ g, the gradient in the new coordinates."""
        if isinstance(self.factor, LowRank):
            return self.factor.transposed_times(g)
        return g @ self.factor if self.is_dense else g * self.factor

    def rotated(self, rotation: np.ndarray) -> Metric:
        """Return the metric with factor L Q, which whitens as well for orthogonal Q.

        Of dense metrics alone.
        """
        assert isinstance(self.factor, np.ndarray)
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
