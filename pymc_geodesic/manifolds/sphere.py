"""Unit sphere, whose geodesics are great circles."""

import math
from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from pymc_geodesic.manifolds.manifold import Floats, Manifold, Shape, batch_shape, require_positive
from pymc_geodesic.runtime.jit import compiled


@compiled
def project(x: Floats, v: Floats) -> None:
    """Subtract the radial part from the rows of `v`: v ← v − x (x·v)/(x·x)."""
    rows, size = x.shape
    for row in range(rows):
        xx = 0.0
        xv = 0.0
        for i in range(size):
            xx += x[row, i] * x[row, i]
            xv += x[row, i] * v[row, i]
        radial = xv / xx
        for i in range(size):
            v[row, i] -= radial * x[row, i]


@compiled
def geodesic(x: Floats, v: Floats, time: float) -> None:
    """Rotate the rows of `x` and `v` along great circles.

    With α = ‖v‖ [1]_: x ← x cos αt + (v/α) sin αt and v ← v cos αt − α x sin αt. Rounding errors do
    not accumulate: the length of x and the radial part of v, which follow from the same inner
    products as α, are corrected in the same pass.

    References
    ----------
    .. [1] S. Byrne and M. Girolami, "Geodesic Monte Carlo on embedded manifolds", Scandinavian
       Journal of Statistics 40(4), 2013, section 4.1.
    """
    rows, size = x.shape
    for row in range(rows):
        xx = 0.0
        xv = 0.0
        vv = 0.0
        for i in range(size):
            xx += x[row, i] * x[row, i]
            xv += x[row, i] * v[row, i]
            vv += v[row, i] * v[row, i]
        radial = xv / xx
        scale = 1.0 / math.sqrt(xx)
        speed = math.sqrt(max(vv - radial * xv, 0.0))
        cosine = math.cos(speed * time)
        sine = math.sin(speed * time)
        # For α → 0 the factor sin(αt)/α tends to t.
        arc = sine / speed if speed != 0.0 else time
        x_to_x = cosine * scale - arc * radial
        x_to_v = -speed * sine * scale - cosine * radial
        for i in range(size):
            position = x[row, i]
            velocity = v[row, i]
            x[row, i] = x_to_x * position + arc * velocity
            v[row, i] = x_to_v * position + cosine * velocity


@dataclass(frozen=True)
class Sphere(Manifold):
    """Unit vectors of ℝⁿ, the sphere S^{n−1}.

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
    A quarter turn on the circle.

    >>> import numpy as np
    >>> from pymc_geodesic.manifolds import Sphere
    >>> x, v = Sphere(2).geodesic(np.array([1.0, 0.0]), np.array([0.0, 1.0]), np.pi / 2)
    >>> x.round(12), v.round(12)
    (array([0., 1.]), array([-1.,  0.]))
    """

    n: int

    code: ClassVar[int] = 2
    has_edge: ClassVar[bool] = False
    remedy: ClassVar[str] = "Divide each vector by its Euclidean norm."

    def __post_init__(self) -> None:
        require_positive("n", self.n)
        if self.n < 2:
            raise ValueError("n must be at least 2: a sphere in one dimension is two points.")

    @property
    def shape(self) -> Shape:
        """Shape of one point, ``(n,)``."""
        return (self.n,)

    @property
    def dim(self) -> int:
        """Dimension, n − 1."""
        return self.n - 1

    def random_point(self, rng: np.random.Generator, size: int | Shape = ()) -> Floats:
        """Draw values uniform on the sphere; see `Manifold.random_point`."""
        x = rng.standard_normal(batch_shape(size) + self.shape)
        return x / np.linalg.norm(x, axis=-1, keepdims=True)

    def contains(self, x: Floats, atol: float = 1e-8) -> np.ndarray:
        """Test which values have unit length; see `Manifold.contains`."""
        return np.abs(np.linalg.norm(x, axis=-1) - 1.0) <= atol

    def projected(self, x: Any, v: Any, xp: ModuleType) -> Any:
        """Subtract the radial part: v − x (x·v)/(x·x); see `Manifold.projected`."""
        radial = xp.sum(x * v, axis=-1, keepdims=True) / xp.sum(x * x, axis=-1, keepdims=True)
        return v - radial * x

    def normal_diagonal(self, x: Any, xp: ModuleType = np) -> Any:
        """Squares x_i²; see `Manifold.normal_diagonal`."""
        return x**2 / xp.sum(x**2, axis=-1, keepdims=True)

    def mean_gradient(self, x: Floats) -> Floats:
        """Return (n − 1) x; see `Manifold.mean_gradient`."""
        return (self.n - 1.0) * x

    def project_rows(self, x: Floats, v: Floats) -> None:
        """Project the rows of `v` in place; see `Manifold.project_rows`."""
        project(x, v)

    def geodesic_rows(self, x: Floats, v: Floats, time: float) -> None:
        """Move the rows of `x` and `v` in place; see `Manifold.geodesic_rows`."""
        geodesic(x, v, time)
