"""Product of the manifolds of several variables, with points packed into one flat vector."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import ModuleType
from typing import Any, ClassVar, NamedTuple

import numpy as np

from pymc_geodesic.manifolds.manifold import Floats, Manifold, Shape, batch_shape, require_positive
from pymc_geodesic.manifolds.product_flows import LAZY_FUNCTIONS, geodesic, project
from pymc_geodesic.runtime.jit import Table, Vector


class Space(NamedTuple):
    """Argument of kernels: a product of manifolds.

    Parameters
    ----------
    blocks : ndarray of int64, shape (n_blocks, 6)
    dims, scales : ndarray, shape (n_blocks,)
        See `Product`.
    """

    blocks: Table
    dims: Vector
    scales: Vector


@dataclass(frozen=True, eq=False)
class Product(Manifold):
    """Product of manifolds, for the joint state of several variables as one flat vector.

    Parameters
    ----------
    components : sequence of (name, manifold, rows)
        Name of each variable, manifold of one of its points, and its number of points.

    Attributes
    ----------
    blocks : array of int64, shape (n_blocks, 6)
        One row ``(code, start, rows, size, n, p)`` per variable, for compiled functions; n and p
        are the shape of a point, p = 1 for vectors.
    dims : array of float64, shape (n_blocks,)
        Dimension of each variable, summed over its points.
    scales : array of float64, shape (n_blocks,)
        Time scale of each variable; initially 1, may be modified in place.
    space : Space
        These three arrays, for kernels.
    slices : dict of str to slice
        Position of each variable in the flat vector.

    Raises
    ------
    ValueError
        If there are no components, a name occurs twice, `rows` is not a positive integer, or a
        manifold has no functions in `product_flows`.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.manifolds import Euclidean, Product, Sphere
    >>> product = Product([("b", Euclidean(2), 1), ("mu", Sphere(3), 2)])
    >>> product.size, product.dim, product.names
    (8, 6, ('b', 'mu'))
    >>> q = product.pack({"mu": np.eye(3)[:2], "b": np.array([5.0, 6.0])})
    >>> q
    array([5., 6., 1., 0., 0., 0., 1., 0.])
    >>> product.unpack(q)["mu"]
    array([[1., 0., 0.], [0., 1., 0.]])
    """

    components: Sequence[tuple[str, Manifold, int]]
    blocks: np.ndarray = field(init=False, repr=False)
    dims: np.ndarray = field(init=False, repr=False)
    scales: np.ndarray = field(init=False, repr=False)
    space: Space = field(init=False, repr=False)
    slices: dict[str, slice] = field(init=False, repr=False)

    code: ClassVar[int] = -1
    remedy: ClassVar[str] = "Check each component."

    def __post_init__(self) -> None:
        components = tuple((name, manifold, rows) for name, manifold, rows in self.components)
        if not components:
            raise ValueError("components is empty. Pass at least one variable.")
        blocks = np.empty((len(components), 6), dtype=np.int64)
        slices: dict[str, slice] = {}
        start = 0
        for block, (name, manifold, rows) in enumerate(components):
            require_positive(f"rows of {name}", rows)
            if name in slices:
                raise ValueError(f"components contain the name {name!r} twice. Use unique names.")
            if manifold.code not in LAZY_FUNCTIONS:
                raise ValueError(
                    f"{name!r} is on {manifold}, which the compiled functions project and geodesic "
                    "do not support. Add its branches in pymc_geodesic.manifolds.product_flows."
                )
            for function in LAZY_FUNCTIONS[manifold.code]:
                function.compile()  # before chains fork, so that it is compiled only once
            n, p = (*manifold.shape, 1)[:2]
            blocks[block] = manifold.code, start, rows, manifold.size, n, p
            slices[name] = slice(start, start + rows * manifold.size)
            start += rows * manifold.size
        dims = np.array([rows * manifold.dim for _, manifold, rows in components], dtype=np.float64)
        object.__setattr__(self, "components", components)
        object.__setattr__(self, "blocks", blocks)
        object.__setattr__(self, "dims", dims)
        object.__setattr__(self, "scales", np.ones(len(components)))
        object.__setattr__(self, "space", Space(blocks, dims, self.scales))
        object.__setattr__(self, "slices", slices)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the variables in the order of the flat vector."""
        return tuple(self.slices)

    @property
    def shape(self) -> Shape:
        """Shape of one point, ``(size,)``."""
        return (self.size,)

    @cached_property
    def size(self) -> int:
        """Length of the flat vector."""
        last = self.blocks[-1]
        return int(last[1] + last[2] * last[3])

    @cached_property
    def dim(self) -> int:
        """Dimension, the sum over all variables and rows."""
        return sum(rows * manifold.dim for _, manifold, rows in self.components)

    def pack(self, values: Mapping[str, Floats]) -> Floats:
        """Pack the values of all variables into one flat vector of coordinates.

        Parameters
        ----------
        values : mapping of str to array
            Value of each variable, of any shape that ravels to its rows in C order. Other names are
            ignored.

        Returns
        -------
        array of float64, shape ``(size,)``

        Raises
        ------
        ValueError
            If a variable is missing or has the wrong number of elements.
        """
        packed = np.empty(self.size)
        for name, manifold, rows in self.components:
            if name not in values:
                raise ValueError(f"values do not contain the variable {name!r}. Add its value.")
            value = np.asarray(values[name], dtype=np.float64)
            if value.size != rows * manifold.size:
                raise ValueError(
                    f"{name} has {value.size} elements, but {rows} points on {manifold} have "
                    f"{rows * manifold.size}. Reshape {name}."
                )
            points = value.reshape(rows, *manifold.shape)
            packed[self.slices[name]] = manifold.to_coordinates(points).ravel()
        return packed

    def unpack(self, q: Floats) -> dict[str, Floats]:
        """Unpack a flat vector of coordinates to values of all variables, the inverse of `pack`.

        Parameters
        ----------
        q : array, shape ``(size,)``

        Returns
        -------
        dict of str to array
            Arrays of shape ``(rows, *shape)``, which do not share memory with `q`.
        """
        return {
            name: np.array(manifold.from_coordinates(q[self.slices[name]].reshape(points)))
            for name, manifold, points in self._point_shapes()
        }

    def random_point(self, rng: np.random.Generator, size: int | Shape = ()) -> Floats:
        """Draw the variables independently; see `Manifold.random_point`."""
        batch = batch_shape(size)
        parts = [
            manifold.random_point(rng, (*batch, rows)).reshape(*batch, -1)
            for _, manifold, rows in self.components
        ]
        return np.concatenate(parts, axis=-1)

    def contains(self, x: Floats, atol: float = 1e-8) -> np.ndarray:
        """Test for which flat vectors all variables are on their manifolds."""
        parts = [manifold.contains(part, atol).all(axis=-1) for manifold, part in self._parts(x)]
        return np.logical_and.reduce(parts)

    def to_coordinates(self, value: Floats) -> Floats:
        """Coordinates of a flat vector of values; see `Manifold.to_coordinates`."""
        value = np.asarray(value, dtype=np.float64)
        parts = [
            manifold.to_coordinates(part).reshape(*value.shape[:-1], -1)
            for manifold, part in self._parts(value)
        ]
        return np.concatenate(parts, axis=-1)

    def from_coordinates(self, q: Any, xp: ModuleType = np) -> Any:
        """Flat vector of values at coordinates `q`; see `Manifold.from_coordinates`."""
        parts = [
            manifold.from_coordinates(part, xp).reshape((*_lead(q), -1))
            for manifold, part in self._parts(q)
        ]
        return xp.concatenate(parts, axis=-1)

    def log_volume(self, q: Any, xp: ModuleType = np) -> Any:
        """Sum of the density factors of all variables; see `Manifold.log_volume`."""
        return sum(
            xp.sum(manifold.log_volume(part, xp), axis=-1) for manifold, part in self._parts(q)
        )

    def check(self, name: str, x: Floats) -> None:
        """Check each variable separately; see `Manifold.check`.

        Raises
        ------
        ValueError
            If a value is invalid; the message names the variable after `name`, as in
            ``"state: mu"``.
        """
        x = np.asarray(x)
        if x.shape[-1:] != self.shape:
            raise ValueError(
                f"{name} has shape {x.shape}, but this product needs vectors of length {self.size}."
            )
        for variable, manifold, points in self._point_shapes():
            part = x[..., self.slices[variable]].reshape(*x.shape[:-1], *points)
            manifold.check(f"{name}: {variable}", part)

    def _point_shapes(self) -> list[tuple[str, Manifold, Shape]]:
        """List name, manifold and (rows, *shape) of each variable."""
        return [
            (name, manifold, (rows, *manifold.shape)) for name, manifold, rows in self.components
        ]

    def _parts(self, q: Any) -> list[tuple[Manifold, Any]]:
        """Split vectors (..., size) into one (..., rows, *shape) array per variable."""
        return [
            (manifold, q[..., self.slices[name]].reshape((*_lead(q), *points)))
            for name, manifold, points in self._point_shapes()
        ]

    def projected(self, x: Any, v: Any, xp: ModuleType) -> Any:
        """Project each variable separately; see `Manifold.projected`."""
        parts = [
            manifold.projected(point, vector, xp).reshape((*_lead(v), -1))
            for (manifold, point), (_, vector) in zip(self._parts(x), self._parts(v), strict=True)
        ]
        return xp.concatenate(parts, axis=-1)

    def project_rows(self, x: Floats, v: Floats) -> None:
        """Project the rows of `v` in place; see `Manifold.project_rows`."""
        for position, vector in zip(x, v, strict=True):
            project(self.blocks, position, vector)

    def geodesic_rows(self, x: Floats, v: Floats, time: float) -> None:
        """Move the rows of `x` and `v` in place; see `Manifold.geodesic_rows`."""
        for position, vector in zip(x, v, strict=True):
            geodesic(self.blocks, position, vector, time)


def _lead(q: Any) -> tuple[Any, ...]:
    """Return the batch shape of vectors (..., size), also for symbolic vectors."""
    return tuple(q.shape[axis] for axis in range(q.ndim - 1))
