r"""Metrics: linear changes of coordinates in which a posterior has about unit covariance.

Euclidean coordinates are whitened by x = c + L z, which transforms the covariance L Lᵀ to I. L Lᵀ
is the inverse mass matrix of Hamiltonian Monte Carlo. On a compact manifold a mass matrix would
change the geodesics; each variable on such a manifold has a single length scale, which multiplies
its velocities.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import lu_factor, lu_solve


@dataclass(frozen=True, eq=False)
class LowRank:
    r"""A diagonal matrix with a low-rank correction.

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

    def _stretched(self, z: np.ndarray, stretch: np.ndarray) -> np.ndarray:
        """Return z with its components along the directions multiplied by ``stretch``."""
        return z + ((z @ self.directions) * (stretch - 1.0)) @ self.directions.T

    def times(self, z: np.ndarray) -> np.ndarray:
        """Return L z for one vector or rows of vectors."""
        return self._stretched(z, self.stretch) * self.scale

    def solve(self, x: np.ndarray) -> np.ndarray:
        """Return L⁻¹ x."""
        return self._stretched(x / self.scale, 1.0 / self.stretch)

    def transposed_times(self, g: np.ndarray) -> np.ndarray:
        """Return Lᵀ g."""
        return self._stretched(g * self.scale, self.stretch)

    def transposed_solve(self, g: np.ndarray) -> np.ndarray:
        """Return L⁻ᵀ g."""
        return self._stretched(g, 1.0 / self.stretch) / self.scale

    @property
    def row_norms(self) -> np.ndarray:
        """Norm of each row of L, shape (d,)."""
        return self.scale * np.sqrt(1.0 + self.directions**2 @ (self.stretch**2 - 1.0))

    @property
    def precision(self) -> np.ndarray:
        """Diagonal of (L Lᵀ)⁻¹, shape (d,)."""
        return (1.0 + self.directions**2 @ (self.stretch**-2.0 - 1.0)) / self.scale**2

    def with_scale(self, scale: np.ndarray) -> LowRank:
        """Return a factor with another D and the same low-rank part of the covariance L Lᵀ."""
        directions, triangle = np.linalg.qr((self.scale / scale)[:, np.newaxis] * self.directions)
        values, rotation = np.linalg.eigh((triangle * (self.stretch**2 - 1.0)) @ triangle.T)
        least = min(1.0, float(self.stretch.min(initial=1.0)))
        stretch = np.sqrt(np.maximum(1.0 + values, least**2))
        return LowRank(scale, directions @ rotation, stretch)

    def dense(self) -> np.ndarray:
        """Return L as a matrix, shape (d, d)."""
        return self.times(np.eye(self.scale.size)).T


Factor = np.ndarray | LowRank
"""L as a matrix, shape (d, d), its diagonal, shape (d,), or a diagonal with a low rank."""


@dataclass(frozen=True, eq=False)
class Metric:
    """Whitened coordinates z of the Euclidean variables, and length scales of other variables.

    Attributes
    ----------
    center : ndarray, shape (d,)
        c, the origin of the whitened coordinates.
    factor : Factor
        L.
    lengths : ndarray, shape (n,)
        Length scale of each variable that is not Euclidean.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.gradients.metric import Metric
    >>> metric = Metric(np.array([1.0, 0.0]), np.array([[2.0, 0.0], [1.0, 1.0]]))
    >>> metric.to_position(np.array([1.0, 1.0]))
    array([3., 2.])
    >>> metric.whiten(np.array([3.0, 2.0]))
    array([1., 1.])
    """

    center: np.ndarray
    factor: Factor
    lengths: np.ndarray = field(default_factory=lambda: np.empty(0))

    @property
    def is_dense(self) -> bool:
        """Whether L is a full matrix."""
        return isinstance(self.factor, np.ndarray) and self.factor.ndim == 2

    @cached_property
    def sd(self) -> np.ndarray:
        """Standard deviation of each coordinate for the covariance L Lᵀ, shape (d,)."""
        if isinstance(self.factor, LowRank):
            return self.factor.row_norms
        return np.sqrt(np.sum(self.factor**2, axis=1)) if self.is_dense else np.abs(self.factor)

    @property
    def precision(self) -> np.ndarray:
        """Diagonal of (L Lᵀ)⁻¹, the inverse of the conditional variances, shape (d,)."""
        if isinstance(self.factor, LowRank):
            return self.factor.precision
        inverse = np.linalg.inv(self.factor) if self.is_dense else 1.0 / self.factor[np.newaxis]
        return np.asarray(np.sum(inverse**2, axis=0))

    @cached_property
    def _lu(self) -> tuple[np.ndarray, np.ndarray]:
        """LU factors of L, where it is a matrix."""
        return lu_factor(self.factor)

    def to_direction(self, z: np.ndarray) -> np.ndarray:
        """Return L z for one vector or rows of vectors."""
        if isinstance(self.factor, LowRank):
            return self.factor.times(z)
        return z @ self.factor.T if self.is_dense else z * self.factor

    def to_position(self, z: np.ndarray) -> np.ndarray:
        """Return c + L z for one point or rows of points."""
        return self.center + self.to_direction(z)

    def whiten(self, x: np.ndarray) -> np.ndarray:
        """Return L⁻¹ (x − c)."""
        away = x - self.center
        if isinstance(self.factor, LowRank):
            return self.factor.solve(away)
        return lu_solve(self._lu, away.T).T if self.is_dense else away / self.factor

    def to_gradient(self, g: np.ndarray) -> np.ndarray:
        """Return Lᵀ g, the gradient in whitened coordinates."""
        if isinstance(self.factor, LowRank):
            return self.factor.transposed_times(g)
        return g @ self.factor if self.is_dense else g * self.factor

    def to_model_gradient(self, g: np.ndarray) -> np.ndarray:
        """Return L⁻ᵀ g, the gradient in the coordinates of the model; inverse of `to_gradient`."""
        if isinstance(self.factor, LowRank):
            return self.factor.transposed_solve(g)
        return lu_solve(self._lu, g.T, trans=1).T if self.is_dense else g / self.factor

    def rotated(self, rotation: np.ndarray) -> Metric:
        """Return the metric with factor L Q for orthogonal Q and dense L."""
        assert isinstance(self.factor, np.ndarray)
        return Metric(self.center, self.factor @ rotation, self.lengths)

    def rescaled(self, ratio: np.ndarray) -> Metric:
        """Return the metric with the scales of coordinates multiplied by a ratio, shape (d,)."""
        if isinstance(self.factor, LowRank):
            factor: Factor = self.factor.with_scale(ratio * self.factor.scale)
        else:
            factor = (ratio * self.factor.T).T
        return Metric(self.center, factor, self.lengths)

    def recentered(self, center: np.ndarray) -> Metric:
        """Return the metric with another origin."""
        return Metric(np.array(center), self.factor, self.lengths)

    @property
    def state(self) -> dict[str, Any]:
        """Arrays by name."""
        named = {"center": self.center, "lengths": self.lengths}
        if isinstance(self.factor, LowRank):
            return named | vars(self.factor)
        return named | {"factor": self.factor}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Metric:
        """Create a metric from the arrays of `state`."""
        named = dict(state)
        center, lengths = named.pop("center"), named.pop("lengths")
        return cls(center, LowRank(**named) if "scale" in named else named["factor"], lengths)


def unit_metric(size: int, n_lengths: int = 0) -> Metric:
    """Return the metric of the coordinates of the model."""
    return Metric(np.zeros(size), np.ones(size), np.ones(n_lengths))


def diagonal_metric(center: np.ndarray, gradient: np.ndarray) -> Metric:
    """Return an initial metric with the scale 1/sqrt(|g|) of each coordinate, at most 1.

    At a distance of the order of s from the mode of a posterior with standard deviation s, the
    gradient is of order 1/s. Farther away the scale is underestimated, which is stable, and
    corrected when draws are available.
    """
    scale = 1.0 / np.sqrt(np.maximum(np.abs(gradient), 1.0))
    return Metric(np.array(center), scale)
