"""Probability simplex as an orthant of the sphere, by square roots."""

from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from pymc_geodesic.manifolds import sphere
from pymc_geodesic.manifolds.manifold import Floats, Manifold, Shape, batch_shape, require_simplex
from pymc_geodesic.runtime.jit import compiled


@compiled
def project(x: Floats, v: Floats) -> None:
    """Subtract the radial part from the rows of `v`, as on the sphere."""
    sphere.project(x, v)


@compiled
def geodesic(x: Floats, v: Floats, time: float) -> None:
    """Rotate the rows of `x` and `v` along great circles, as on the sphere."""
    sphere.geodesic(x, v, time)


@dataclass(frozen=True)
class Simplex(Manifold):
    r"""Probability vectors of length n, which move on the sphere of their square roots.

    The value is θ with θ_k ≥ 0 and Σθ_k = 1; the coordinates are a unit vector q with θ_k = q_k².
    The signs of q are free: if a great circle leaves the positive orthant, θ moves as if it were
    reflected, so that there are no walls.

    **Chart.** A density p(θ) is defined with respect to dθ_1 … dθ_{n−1}. From θ_k = q_k²,

    .. math:: dθ_1 \cdots dθ_{n-1} = 2^{n-1} \prod_{k<n} |q_k|\, dq_1 \cdots dq_{n-1},

    and the surface element of the sphere is :math:`dS = dq_1 \cdots dq_{n-1} / |q_n|`. Together

    .. math:: p(θ)\, dθ = 2^{n-1}\, p(θ(q)) \prod_{k=1}^{n} |q_k|\, dS .

    Hence `log_volume` is :math:`\sum_k \log |q_k|`. The omitted constant is (n − 1) log 2 on one
    orthant, and −log 2 on the sphere, which covers the simplex 2ⁿ times. This is the map of [1]_,
    section 4.3, for the density of θ.

    Parameters
    ----------
    n : int
        Length of the vectors, at least 2.

    Raises
    ------
    ValueError
        If `n` is not an integer of at least 2.

    References
    ----------
    .. [1] S. Byrne and M. Girolami, "Geodesic Monte Carlo on embedded manifolds", Scandinavian
       Journal of Statistics 40(4), 2013.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.manifolds import Simplex
    >>> simplex = Simplex(2)
    >>> q = simplex.to_coordinates(np.array([0.36, 0.64]))
    >>> q
    array([0.6, 0.8])
    >>> simplex.from_coordinates(-q)
    array([0.36, 0.64])
    """

    n: int

    code: ClassVar[int] = 3
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
        """Draw values uniform on the simplex (in θ, not in q); see `Manifold.random_point`."""
        return rng.dirichlet(np.ones(self.n), batch_shape(size))

    def contains(self, x: Floats, atol: float = 1e-8) -> np.ndarray:
        """Test which values are probability vectors; see `Manifold.contains`."""
        return on_simplex(x, atol)

    def to_coordinates(self, value: Floats) -> Floats:
        """Compute the square roots of a value, in the positive orthant."""
        return np.sqrt(np.maximum(value, 0.0))

    def from_coordinates(self, q: Any, xp: ModuleType = np) -> Any:
        """Squares of the coordinates; see `Manifold.from_coordinates`."""
        return q * q

    def log_volume(self, q: Any, xp: ModuleType = np) -> Any:
        """Σ_k log|q_k| for each point; see `Manifold.log_volume` and the class."""
        return xp.sum(xp.log(xp.abs(q)), axis=-1)

    def projected(self, x: Any, v: Any, xp: ModuleType) -> Any:
        """Project as on the sphere of the coordinates; see `Manifold.projected`."""
        return sphere.Sphere(self.n).projected(x, v, xp)

    def normal_diagonal(self, x: Any, xp: ModuleType = np) -> Any:
        """Square the coordinates, as on the sphere; see `Manifold.normal_diagonal`."""
        return sphere.Sphere(self.n).normal_diagonal(x, xp)

    def project_rows(self, x: Floats, v: Floats) -> None:
        """Project the rows of `v` in place; see `Manifold.project_rows`."""
        project(x, v)

    def geodesic_rows(self, x: Floats, v: Floats, time: float) -> None:
        """Move the rows of `x` and `v` in place; see `Manifold.geodesic_rows`."""
        geodesic(x, v, time)


def on_simplex(x: Floats, atol: float) -> np.ndarray:
    """Test which vectors along the last axis are non-negative with sum 1, up to `atol`."""
    x = np.asarray(x)
    return (x >= -atol).all(axis=-1) & (np.abs(x.sum(axis=-1) - 1.0) <= atol)
