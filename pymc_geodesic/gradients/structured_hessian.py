r"""Hessian of a log-density in which groups are independent given common coordinates.

With p common coordinates and K vectors that have one entry for each of G groups, such as intercepts
and slopes by group or the columns of a matrix of both, the Hessian has p dense rows, and K × K
diagonal blocks for the entries of the same group. It follows from p + K Hessian-vector products:
those with the unit vector of each common coordinate, and with the indicator of each grouped vector.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from pymc_geodesic.runtime.jit import compiled


@dataclass(frozen=True)
class HessianStructureSettings:
    """Constants of the check of a structure.

    Attributes
    ----------
    tolerance : float
        Upper bound on the change of the gradient along the groups that are not moved, relative to
        the change along those that are, for rounding errors.
    """

    tolerance: float = 1e-8


SETTINGS = HessianStructureSettings()


@dataclass(frozen=True, eq=False)
class HessianStructure:
    """Common and grouped coordinates of a Hessian, which is dense if there are no groups.

    Attributes
    ----------
    size : int
        Number of coordinates.
    common : ndarray of int64, shape (p,)
        Indices of the common coordinates.
    starts, strides : ndarray of int64, shape (K,)
        First index of each grouped vector, and distance of the entries of successive groups.
    n_groups : int
        G.
    """

    size: int
    common: np.ndarray
    starts: np.ndarray
    strides: np.ndarray
    n_groups: int

    @classmethod
    def dense(cls, size: int) -> Self:
        """Return the structure of a dense Hessian."""
        none = np.empty(0, dtype=np.int64)
        return cls(size, np.arange(size), none, none, 0)

    @classmethod
    def by_group(cls, shapes: Sequence[tuple[int, ...]]) -> Self:
        """Return the structure whose groups are along the longest axis of a variable.

        All variables with an axis of this length are grouped.

        Parameters
        ----------
        shapes : sequence of tuple of int
            Shape of each variable.

        Examples
        --------
        >>> from pymc_geodesic.gradients.structured_hessian import HessianStructure
        >>> structure = HessianStructure.by_group([(), (50,), (3,), (50, 2)])
        >>> structure.common.tolist(), structure.n_groups
        ([0, 51, 52, 53], 50)
        >>> structure.starts.tolist(), structure.strides.tolist()
        ([1, 54, 55], [1, 2, 2])
        """
        n_groups = max(max(shape, default=1) for shape in shapes)
        size, common, starts, strides = 0, [], [], []
        for shape in shapes:
            shape = shape or (1,)
            coordinates = size + np.arange(math.prod(shape)).reshape(shape)
            size += coordinates.size
            if n_groups not in shape:
                common += coordinates.ravel().tolist()
                continue
            axis = shape.index(n_groups)
            first = coordinates.take(0, axis=axis).ravel().tolist()
            starts += first
            strides += len(first) * [math.prod(shape[axis + 1 :])]
        indices = [np.array(each, dtype=np.int64) for each in (common, starts, strides)]
        return cls(size, indices[0], indices[1], indices[2], n_groups)

    @property
    def n_products(self) -> int:
        """Number of Hessian-vector products that determine the Hessian, p + K."""
        return len(self.common) + len(self.starts)

    @property
    def vectors(self) -> list[slice]:
        """Coordinates of each grouped vector."""
        n = self.n_groups - 1
        pairs = zip(self.starts, self.strides, strict=True)
        return [slice(start, start + n * stride + 1, stride) for start, stride in pairs]

    def directions(self) -> np.ndarray:
        """Return the vectors of these products, shape (p + K, size)."""
        directions = np.zeros((self.n_products, self.size))
        directions[np.arange(len(self.common)), self.common] = 1.0
        for direction, vector in zip(directions[len(self.common) :], self.vectors, strict=True):
            direction[vector] = 1.0
        return directions

    def coupling(
        self, gradient: Callable[[np.ndarray], np.ndarray], x: np.ndarray, other: np.ndarray
    ) -> float:
        """Compute how much the gradient along a group depends on other groups.

        The groups whose number has the binary digit 1 are moved, for each digit: any two groups
        differ in one of them.

        Parameters
        ----------
        gradient : callable
            Gradient over all rows.
        x, other : ndarray, shape (size,)
            Two points; groups are moved from the first to the second.

        Returns
        -------
        float
            Largest change of the gradient along groups that are not moved, relative to that along
            those that are, with `SETTINGS.tolerance` as unit: at most 1 if groups are independent.
            NaN if a gradient is not finite.
        """
        worst = 0.0
        if not self.n_groups:
            return worst
        at_x = gradient(x)
        for digit in range((self.n_groups - 1).bit_length()):
            is_moved = (np.arange(self.n_groups) >> digit) % 2 == 1
            moved = x.copy()
            for vector in self.vectors:
                moved[vector] = np.where(is_moved, other[vector], x[vector])
            difference = np.abs(gradient(moved) - at_x)
            change = np.array([difference[vector] for vector in self.vectors])
            if not np.isfinite(change).all():
                return math.nan
            of_others = change[:, ~is_moved].max(axis=1)
            is_coupled = of_others > 0.0
            bound = SETTINGS.tolerance * change[:, is_moved].max(axis=1)
            with np.errstate(divide="ignore"):
                ratios = of_others[is_coupled] / bound[is_coupled]
            worst = max(worst, float(ratios.max(initial=0.0)))
        return worst


@compiled
def structured_product(
    rows: np.ndarray,
    blocks: np.ndarray,
    common: np.ndarray,
    starts: np.ndarray,
    strides: np.ndarray,
    v: np.ndarray,
    product: np.ndarray,
) -> None:
    """Multiply a structured Hessian by a vector.

    Parameters
    ----------
    rows, blocks
        See `StructuredHessian`.
    common, starts, strides
        See `HessianStructure`.
    v : ndarray, shape (size,)
    product : ndarray, shape (size,)
        Receives H v.
    """
    n_groups = blocks.shape[2]
    if n_groups:
        for i in range(v.size):
            product[i] = 0.0
        for a in range(common.size):
            row, factor = rows[a], v[common[a]]
            for i in range(v.size):
                product[i] += factor * row[i]
        for k in range(starts.size):
            for m in range(starts.size):
                block, i, j = blocks[k, m], starts[k], starts[m]
                for g in range(n_groups):
                    product[i + g * strides[k]] += block[g] * v[j + g * strides[m]]
    for a in range(common.size):
        row, total = rows[a], 0.0
        for i in range(v.size):
            total += row[i] * v[i]
        product[common[a]] = total


class StructuredHessian:
    """A Hessian with a structure.

    Parameters
    ----------
    structure : HessianStructure
    values : ndarray, shape (n_values,), optional
        Elements of `rows` and `blocks`; zeros by default.

    Attributes
    ----------
    structure, values
        See above.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.gradients.structured_hessian import HessianStructure, StructuredHessian
    >>> structure = HessianStructure.by_group([(), (2,)])
    >>> hessian = StructuredHessian(structure, np.array([5.0, 1.0, 2.0, 3.0, 4.0]))
    >>> hessian.times(np.array([1.0, 10.0, 100.0]))
    array([215.,  31., 402.])
    """

    def __init__(self, structure: HessianStructure, values: np.ndarray | None = None) -> None:
        self.structure = structure
        n_blocks = len(structure.starts) ** 2
        n_values = len(structure.common) * structure.size + n_blocks * structure.n_groups
        self.values = np.zeros(n_values) if values is None else values

    @property
    def rows(self) -> np.ndarray:
        """Rows of the common coordinates, a view of shape (p, size)."""
        p, size = len(self.structure.common), self.structure.size
        return self.values[: p * size].reshape(p, size)

    @property
    def blocks(self) -> np.ndarray:
        """Second derivatives by two grouped vectors for the same group, a view, (K, K, G)."""
        n_vectors, n_groups = len(self.structure.starts), self.structure.n_groups
        n_dense = len(self.structure.common) * self.structure.size
        return self.values[n_dense:].reshape(n_vectors, n_vectors, n_groups)

    @classmethod
    def from_products(cls, structure: HessianStructure, products: np.ndarray) -> Self:
        """Create a Hessian from its products with `HessianStructure.directions`.

        Parameters
        ----------
        structure : HessianStructure
        products : ndarray, shape (p + K, size)
        """
        hessian, p = cls(structure), len(structure.common)
        hessian.rows[:] = products[:p]
        for k, vector in enumerate(structure.vectors):
            hessian.blocks[k] = products[p:, vector]
        return hessian

    def times(self, v: np.ndarray) -> np.ndarray:
        """Return H v for one vector."""
        product, of = np.empty(v.size), self.structure
        structured_product(self.rows, self.blocks, of.common, of.starts, of.strides, v, product)
        return product
