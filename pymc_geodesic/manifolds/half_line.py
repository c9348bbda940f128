"""Half-line of positive numbers, with reflection at zero."""

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
    """Move the rows of `x` along their velocities and reflect negative values at zero."""
    rows, size = x.shape
    for row in range(rows):
        for i in range(size):
            moved = x[row, i] + time * v[row, i]
            x[row, i] = abs(moved)
            v[row, i] = -v[row, i] if moved < 0.0 else v[row, i]


@dataclass(frozen=True)
class HalfLine(Manifold):
    """Vectors of n non-negative numbers, each with a reflecting wall at zero.

    A straight line that reaches zero is reflected. The reflection preserves volume and kinetic
    energy, so that the flow is exact for a density on [0, ∞)ⁿ.

    Parameters
    ----------
    n : int
        Number of coordinates per point.

    Raises
    ------
    ValueError
        If `n` is not a positive integer.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.manifolds import HalfLine
    >>> x, v = HalfLine(2).geodesic(np.array([1.0, 1.0]), np.array([2.0, -2.0]), 2.0)
    >>> x, v
    (array([5., 3.]), array([2., 2.]))
    """

    n: int

    code: ClassVar[int] = 1
    is_compact: ClassVar[bool] = False
    remedy: ClassVar[str] = "Use nonnegative values."

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
        """Draw values from the standard exponential distribution; see `Manifold.random_point`."""
        return rng.standard_exponential(batch_shape(size) + self.shape)

    def contains(self, x: Floats, atol: float = 1e-8) -> np.ndarray:
        """Test which values have no negative elements; see `Manifold.contains`."""
        return np.all(np.isfinite(x) & (np.asarray(x) >= -atol), axis=-1)

    def projected(self, x: Any, v: Any, xp: ModuleType) -> Any:
        """Return `v`, since every vector is tangent; see `Manifold.projected`."""
        return v

    def project_rows(self, x: Floats, v: Floats) -> None:
        """Project the rows of `v` in place; see `Manifold.project_rows`."""
        project(x, v)

    def geodesic_rows(self, x: Floats, v: Floats, time: float) -> None:
        """Move the rows of `x` and `v` in place; see `Manifold.geodesic_rows`."""
        geodesic(x, v, time)
