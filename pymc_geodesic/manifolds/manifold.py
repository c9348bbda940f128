"""Base class of embedded manifolds with closed-form geodesics."""

import math
from abc import ABC, abstractmethod
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

Floats = np.ndarray
Shape = tuple[int, ...]


def require_positive(name: str, value: int) -> None:
    """Raise ValueError unless `value` is an integer ≥ 1; the message contains `name`."""
    if not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(f"{name} must be an integer of at least 1, got {value!r}.")


def require_simplex(n: int) -> None:
    """Raise ValueError unless `n`, the length of probability vectors, is an integer ≥ 2."""
    require_positive("n", n)
    if n < 2:
        raise ValueError("n must be at least 2: the only probability vector of length 1 is 1.")


class Manifold(ABC):
    """A Riemannian manifold embedded in Euclidean space, with closed-form geodesics.

    A point has a *value*, which the model uses, and *coordinates*, which move along geodesics. They
    differ only for manifolds with a chart (`Simplex`). `contains`, `check`, `random_point` and
    `to_coordinates` use values; `project` and `geodesic` use coordinates. Arrays
    may have leading batch axes: points have the shape ``(..., *shape)``.

    The module of each subclass has two compiled functions, ``project(x, v)`` and
    ``geodesic(x, v, time)``, that operate in place on C-contiguous ``(rows, size)`` arrays with one
    point per row. The methods below call them on copies; kernels call them on the state (through
    `product_flows`).

    Attributes
    ----------
    code : int
        Number of the manifold in the dispatch table of compiled code.
    has_edge : bool
        Whether it has a boundary, at which a density may have a pole or a discontinuity.
    is_flat : bool
        Whether it is ℝⁿ, so that x = c + Lz maps straight lines to straight lines.
    is_compact : bool
        Whether it is compact, so that the length of useful trajectories is bounded.
    is_connected : bool
        Whether it is connected.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.manifolds import Manifold, Sphere
    >>> sphere = Sphere(3)
    >>> isinstance(sphere, Manifold), sphere.dim
    (True, 2)
    >>> sphere.project(np.array([0.0, 0.0, 1.0]), np.array([1.0, 2.0, 3.0]))
    array([1., 2., 0.])
    """

    code: ClassVar[int]
    has_edge: ClassVar[bool] = True
    is_flat: ClassVar[bool] = False
    is_compact: ClassVar[bool] = True
    remedy: ClassVar[str]

    @property
    def is_connected(self) -> bool:
        """Whether the manifold is connected."""
        return True

    @property
    @abstractmethod
    def shape(self) -> Shape:
        """Shape of one point in the ambient space."""

    @property
    @abstractmethod
    def dim(self) -> int:
        """Dimension of the manifold."""

    @property
    def size(self) -> int:
        """Number of ambient coordinates of one point, the product of `shape`."""
        return math.prod(self.shape)

    @property
    def is_constrained(self) -> bool:
        """Whether tangent vectors have fewer dimensions than coordinates."""
        return self.dim < self.size

    @abstractmethod
    def project_rows(self, x: Floats, v: Floats) -> None:
        """Project velocities onto the tangent spaces, in place.

        Parameters
        ----------
        x, v : array, shape ``(rows, *shape)``
            Points and ambient vectors, C-contiguous.
        """

    @abstractmethod
    def geodesic_rows(self, x: Floats, v: Floats, time: float) -> None:
        """Move points and velocities along geodesics, in place.

        Parameters
        ----------
        x, v : array, shape ``(rows, *shape)``
            Points and tangent vectors, C-contiguous.
        time : float
        """

    @abstractmethod
    def random_point(self, rng: np.random.Generator, size: int | Shape = ()) -> Floats:
        """Draw values, uniformly on a compact manifold.

        Parameters
        ----------
        rng : numpy.random.Generator
        size : int or tuple of int
            Batch shape.

        Returns
        -------
        array of float64, shape ``(*size, *shape)``
        """

    @abstractmethod
    def contains(self, x: Floats, atol: float = 1e-8) -> np.ndarray:
        """Test which values lie on the manifold.

        Parameters
        ----------
        x : array, shape ``(..., *shape)``
        atol : float
            Maximum violation of a constraint.

        Returns
        -------
        array of bool, shape ``(...)``
        """

    def project(self, x: Any, v: Any, xp: ModuleType = np) -> Any:
        """Project ambient vectors orthogonally onto the tangent space at `x`.

        Parameters
        ----------
        x : array or tensor, shape ``(..., *shape)``
            Coordinates of points on the manifold.
        v : array or tensor, shape ``(..., *shape)``
            Ambient vectors; batch axes broadcast against those of `x`.
        xp : module
            ``numpy``, or ``pytensor.tensor`` when `x` or `v` is symbolic.

        Returns
        -------
        array of float64 or tensor, shape ``(..., *shape)``

        Raises
        ------
        NotImplementedError
            For symbolic vectors, if the subclass lacks the method ``projected``.
        """
        if xp is not np:
            return self.projected(x, v, xp)
        rows, vectors, batch = self._paired_rows(x, v)
        self.project_rows(rows, vectors)
        return vectors.reshape(batch + self.shape)

    def projected(self, x: Any, v: Any, xp: ModuleType) -> Any:
        """Projection in functions of `xp`, for arrays and symbolic vectors; see `project`.

        It is equivalent to the compiled ``project(x, v)``, and can project gradients in a graph.

        Parameters
        ----------
        x, v : array or tensor, shape ``(..., *shape)``
        xp : module
            ``numpy`` or ``pytensor.tensor``.

        Raises
        ------
        NotImplementedError
            If the subclass does not have this method.
        """
        raise NotImplementedError(
            f"{type(self).__name__} cannot project symbolic vectors. Implement the method "
            "projected(self, x, v, xp) in functions of xp, or "
            'omit gradient_noise="fisher", which needs it'
        )

    def normal_diagonal(self, x: Any, xp: ModuleType = np) -> Any:
        """Diagonal of the projector onto the normal space at `x`.

        It is 1 − ‖P e_i‖² for each ambient coordinate i, with the projector P onto the tangent
        space. It is computed from the projections of all e_i, with ``size`` times the memory of
        `x`; subclasses may implement closed forms.

        Parameters
        ----------
        x : array or tensor, shape ``(..., *shape)``
            Coordinates of points on the manifold.
        xp : module
            ``numpy``, or ``pytensor.tensor`` when `x` is symbolic.

        Returns
        -------
        array or tensor, shape ``(..., *shape)``
        """
        rank = len(self.shape)
        between = (1,) * (x.ndim - rank)
        # adding zeros broadcasts to all points, even if the projection does not depend on them
        basis = np.eye(self.size).reshape(self.size, *between, *self.shape) + xp.zeros_like(x)
        squares = xp.sum(self.project(x, basis, xp) ** 2, axis=tuple(range(-rank, 0)))
        lengths = xp.moveaxis(squares, 0, -1)
        return 1.0 - xp.reshape(lengths, (*x.shape[: x.ndim - rank], *self.shape))

    def mean_gradient(self, x: Floats) -> Floats | None:
        """Return the vector field H with the same mean as the tangential gradient of log π.

        By integration by parts, E[P(x) ∇log π(x)] = E[H(x)] for every smooth density π, with the
        tangent projector P. Curved manifolds have H ≠ 0. Manifolds with a boundary have no such
        identity.

        Parameters
        ----------
        x : array, shape ``(..., *shape)``
            Coordinates of points on the manifold.

        Returns
        -------
        array, shape ``(..., *shape)``, or None
            H(x); None for manifolds with a boundary.
        """
        return None

    def geodesic(self, x: Floats, v: Floats, time: float) -> tuple[Floats, Floats]:
        """Follow the geodesic from `x` with initial velocity `v` for a time `time`.

        Parameters
        ----------
        x : array, shape ``(..., *shape)``
            Coordinates of points on the manifold.
        v : array, shape ``(..., *shape)``
            Tangent vectors; batch axes broadcast against those of `x`.
        time : float
            May be negative.

        Returns
        -------
        x, v : arrays of float64, shape ``(..., *shape)``
            End point, and velocity at the end point.
        """
        rows, vectors, batch = self._paired_rows(x, v)
        self.geodesic_rows(rows, vectors, float(time))
        return rows.reshape(batch + self.shape), vectors.reshape(batch + self.shape)

    def to_coordinates(self, value: Floats) -> Floats:
        """Compute the coordinates of a value; by default the value itself."""
        return np.asarray(value, dtype=np.float64)

    def from_coordinates(self, q: Any, xp: ModuleType = np) -> Any:
        """Value at the coordinates `q`, the inverse of `to_coordinates`.

        Parameters
        ----------
        q : array or tensor, shape ``(..., *shape)``
        xp : module
            ``numpy``, or ``pytensor.tensor`` when `q` is symbolic.

        Returns
        -------
        array or tensor, shape ``(..., *shape)``
        """
        return q

    def log_volume(self, q: Any, xp: ModuleType = np) -> Any:
        """Logarithm of the density factor of the chart, up to a constant.

        If p is the density of the value, the density of the coordinates with respect to the
        surface measure is proportional to p(value(q)) · exp(log_volume(q)).

        Parameters
        ----------
        q : array or tensor, shape ``(..., *shape)``
        xp : module
            ``numpy``, or ``pytensor.tensor`` when `q` is symbolic.

        Returns
        -------
        array or tensor, shape ``(...)``
            Zero by default.
        """
        return xp.zeros_like(q[(..., *(0 for _ in self.shape))])

    def check(self, name: str, x: Floats) -> None:
        """Check that every value lies on the manifold.

        Parameters
        ----------
        name : str
            Name of the variable, for the message.
        x : array, shape ``(..., *shape)``

        Raises
        ------
        ValueError
            If the trailing axes do not have the shape of a point, if a value is NaN or infinite, or
            if a point is not on the manifold.
        """
        x = np.asarray(x)
        rank = len(self.shape)
        if x.shape[x.ndim - rank :] != self.shape or x.ndim < rank:
            raise ValueError(
                f"{name} has shape {x.shape}, but points of {self} need trailing axes of shape "
                f"{self.shape}. Reshape {name}, or use a manifold of its shape."
            )
        if not np.all(np.isfinite(x)):
            raise ValueError(
                f"{name} has {np.count_nonzero(~np.isfinite(x))} values that are NaN or infinite. "
                f"Set a finite initial value of {name}, within the support of its distribution."
            )
        off = np.count_nonzero(~self.contains(x))
        if off:
            raise ValueError(
                f"{off} of the {max(1, x.size // self.size)} points of {name} are not on {self}. "
                f"{self.remedy}"
            )

    def _paired_rows(self, x: Floats, v: Floats) -> tuple[Floats, Floats, Shape]:
        """Copy points and vectors to two (rows, size) arrays; also return their batch shape."""
        full = np.broadcast_shapes(np.shape(x), np.shape(v))
        if full[len(full) - len(self.shape) :] != self.shape:
            raise ValueError(
                f"x and v have shapes {np.shape(x)} and {np.shape(v)}, but points of {self} need "
                f"trailing axes of shape {self.shape}."
            )
        rows = np.array(np.broadcast_to(x, full), dtype=np.float64, order="C")
        vectors = np.array(np.broadcast_to(v, full), dtype=np.float64, order="C")
        batch = full[: len(full) - len(self.shape)]
        return rows.reshape(-1, self.size), vectors.reshape(-1, self.size), batch


def batch_shape(size: int | Shape) -> Shape:
    """Return the batch shape as a tuple."""
    return (size,) if isinstance(size, int | np.integer) else tuple(size)
