"""Euclidean space, whose geodesics are straight lines."""

from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from pymc_geodesic.manifolds.manifold import Floats, Manifold, Shape, batch_shape, require_positive
from pymc_geodesic.runtime.jit import compiled


@compiled
def project(x: Floats, v: Floats) -> None:
    """Do nothing, since every vector is tangent."""


@compiled
def geodesic(x: Floats, v: Floats, time: float) -> None:
    """Move the rows of `x` along their velocities: x ← x + time·v."""
    rows, size = x.shape
    for row in range(rows):
        for i in range(size):
            x[row, i] += time * v[row, i]


@dataclass(frozen=True)
class Euclidean(Manifold):
    """Euclidean space ℝⁿ. Samplers on it reduce to their textbook form (HMC, SGHMC, SGNHT).

    Parameters
    ----------
    n : int
        Dimension.

    Raises
    ------
    ValueError
        If `n` is not a positive integer.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.manifolds import Euclidean
    >>> x, v = Euclidean(2).geodesic(np.zeros(2), np.array([1.0, -2.0]), 0.5)
    >>> x
    array([ 0.5, -1. ])
    """

    n: int

    code: ClassVar[int] = 0
    has_edge: ClassVar[bool] = False
    is_flat: ClassVar[bool] = True
    is_compact: ClassVar[bool] = False
    remedy: ClassVar[str] = "Use finite values."

    def __post_init__(self) -> None:
        require_positive("n", self.n)

    @property
    def shape(self) -> Shape:
        """Shape of one point, ``(n,)``."""
        return (self.n,)

    @property
    def dim(self) -> int:
        """Dimension, n."""
        return self.n

    def random_point(self, rng: np.random.Generator, size: int | Shape = ()) -> Floats:
        """Draw values from the standard normal distribution; see `Manifold.random_point`."""
        return rng.standard_normal(batch_shape(size) + self.shape)

    def contains(self, x: Floats, atol: float = 1e-8) -> np.ndarray:
        """Test which values are finite; see `Manifold.contains`."""
        return np.all(np.isfinite(x), axis=-1)

    def projected(self, x: Any, v: Any, xp: ModuleType) -> Any:
        """Return `v`, since every vector is tangent; see `Manifold.projected`."""
        return v

    def project_rows(self, x: Floats, v: Floats) -> None:
        """Project the rows of `v` in place; see `Manifold.project_rows`."""
        project(x, v)

    def geodesic_rows(self, x: Floats, v: Floats, time: float) -> None:
        """Move the rows of `x` and `v` in place; see `Manifold.geodesic_rows`."""
        geodesic(x, v, time)
