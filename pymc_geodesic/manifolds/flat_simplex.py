"""Probability simplex in the Euclidean metric, with reflecting walls."""

from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from pymc_geodesic.manifolds.manifold import Floats, Manifold, Shape, batch_shape, require_simplex
from pymc_geodesic.manifolds.simplex import on_simplex
from pymc_geodesic.runtime.jit import compiled

REFLECTIONS_PER_COORDINATE = 1000
"""Maximum number of reflections of a geodesic per coordinate, before it is set to NaN."""


@compiled
def project(x: Floats, v: Floats) -> None:
    """Subtract the mean from each row of `v`."""
    rows, size = v.shape
    for row in range(rows):
        total = 0.0
        for k in range(size):
            total += v[row, k]
        mean = total / size
        for k in range(size):
            v[row, k] -= mean


@compiled
def geodesic(x: Floats, v: Floats, time: float) -> None:
    """Move the rows of `x` on straight lines from wall to wall.

    At the wall x_k = 0 the velocity is reflected in the hyperplane of the simplex [1]_: with the
    unit normal n ∝ e_k − 1/K inside it, v − 2(v·n)n, that is v_k → −v_k and
    v_j → v_j + 2v_k/(K − 1). Walls are processed one after the other; since x_k = 0 exactly and
    v_k > 0 after a reflection, the same wall is not hit again, and corners need no special case.
    After 1000·K reflections, which occur only for divergent velocities, the row is set to NaN.

    References
    ----------
    .. [1] H. M. Afshar and J. Domke, "Reflection, refraction, and Hamiltonian Monte Carlo",
       Advances in Neural Information Processing Systems 28, 2015, section 3.
    """
    rows, size = x.shape
    direction = 1.0 if time >= 0.0 else -1.0
    for row in range(rows):
        for k in range(size):
            v[row, k] *= direction
        left = direction * time
        reflections = 0
        while True:
            wall = -1
            hit = left
            for k in range(size):
                if x[row, k] < -v[row, k] * hit:
                    hit = max(x[row, k] / -v[row, k], 0.0)
                    wall = k
            for k in range(size):
                moved = x[row, k] + hit * v[row, k]
                x[row, k] = 0.0 if moved < 0.0 else moved
            if wall < 0:
                break
            left -= hit
            normal_speed = v[row, wall]
            for k in range(size):
                v[row, k] += 2.0 * normal_speed / (size - 1)
            x[row, wall] = 0.0
            v[row, wall] = -normal_speed
            reflections += 1
            if reflections == REFLECTIONS_PER_COORDINATE * size:
                x[row, 0] = np.nan
                break
        # Remove rounding errors: the sum of x must be one, that of v zero.
        x_total = 0.0
        v_total = 0.0
        for k in range(size):
            x_total += x[row, k]
            v_total += v[row, k]
        for k in range(size):
            x[row, k] /= x_total
            v[row, k] = direction * (v[row, k] - v_total / size)


@dataclass(frozen=True)
class FlatSimplex(Manifold):
    """Probability vectors of length n in the flat metric, with reflecting walls.

    Points move on straight lines in the hyperplane Σθ_k = 1 and are reflected at the faces θ_k = 0.
    The coordinates are the value. `Simplex` has the same points without walls; its metric stretches
    the corners, which contain the sparse vectors.

    Parameters
    ----------
    n : int
        Length of the vectors, at least 2.

    Raises
    ------
    ValueError
        If `n` is not an integer of at least 2.

    Examples
    --------
    The trajectory is reflected at the wall θ_1 = 0 after half of the time.

    >>> import numpy as np
    >>> from pymc_geodesic.manifolds import FlatSimplex
    >>> x, v = FlatSimplex(2).geodesic(np.array([0.25, 0.75]), np.array([-0.5, 0.5]), 1.0)
    >>> x, v
    (array([0.25, 0.75]), array([ 0.5, -0.5]))
    """

    n: int

    code: ClassVar[int] = 4
    remedy: ClassVar[str] = "Use nonnegative elements and divide each vector by its sum."

    def __post_init__(self) -> None:
        require_simplex(self.n)

    @property
    def shape(self) -> Shape:
        """Shape of one point, ``(n,)``."""
        return (self.n,)

    @property
    def dim(self) -> int:
        """Dimension, n − 1."""
        return self.n - 1

    def random_point(self, rng: np.random.Generator, size: int | Shape = ()) -> Floats:
        """Draw values uniform on the simplex; see `Manifold.random_point`."""
        return rng.dirichlet(np.ones(self.n), batch_shape(size))

    def contains(self, x: Floats, atol: float = 1e-8) -> np.ndarray:
        """Test which values are probability vectors; see `Manifold.contains`."""
        return on_simplex(x, atol)

    def projected(self, x: Any, v: Any, xp: ModuleType) -> Any:
        """Subtract the mean; see `Manifold.projected`."""
        return v - xp.mean(v, axis=-1, keepdims=True)

    def normal_diagonal(self, x: Any, xp: ModuleType = np) -> Any:
        """Return 1/n everywhere; see `Manifold.normal_diagonal`."""
        return xp.full_like(x, 1.0 / self.n)

    def project_rows(self, x: Floats, v: Floats) -> None:
        """Project the rows of `v` in place; see `Manifold.project_rows`."""
        project(x, v)

    def geodesic_rows(self, x: Floats, v: Floats, time: float) -> None:
        """Move the rows of `x` and `v` in place; see `Manifold.geodesic_rows`."""
        geodesic(x, v, time)
