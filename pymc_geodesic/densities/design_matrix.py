"""Design matrices with sparse columns of groups and dense columns: factorization and Gram matrix.

The names A, D, R, Q and u₀ are those of `pymc_geodesic.densities.sufficient_statistics`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.linalg import qr, solve_triangular
from scipy.sparse.linalg import LinearOperator, cg


@dataclass(frozen=True)
class DesignMatrixSettings:
    """Constants of design matrices.

    Values without a stated source are heuristic; no measurement supports them.

    Attributes
    ----------
    max_entries : int
        Upper bound on the number of entries of Q, which take 12 bytes each.
    n_iterations, n_refinements : int
        Maximum number of conjugate-gradient iterations per solution for u₀, which does not have to
        be exact, and of iterative-refinement steps.
    max_ratio : float
        Ratio of sums of squared residuals above which a solution does not improve the last one.
    ridge : float
        Ratio of the ridge to the diagonal of Q.
    rounding : float
        Relative length of the component of a column orthogonal to the preceding columns, below
        which the column counts as linearly dependent.
    rows_per_chunk : int
        Number of rows of the dense columns of A that are joined at a time.
    """

    max_entries: int = 50_000_000
    n_iterations: int = 50
    n_refinements: int = 4
    max_ratio: float = 0.99
    ridge: float = 1e-12
    rounding: float = 1e-13
    rows_per_chunk: int = 65_536


SETTINGS = DesignMatrixSettings()


class StatisticsSize(NamedTuple):
    """Number of entries of the design matrix that a gradient over all rows reads, and of Q.

    The latter is an upper bound, and includes the entries of R.
    """

    n_values: int
    n_entries: int

    @classmethod
    def of(
        cls,
        n_rows: int,
        groups: Sequence[tuple[int, Any]],
        n_dense: int,
        are_equal: Callable[[Any, Any], bool],
    ) -> StatisticsSize:
        """Compute both, from the number of groups and the index of each classification."""
        n_effects = sum(size for size, _ in groups)
        pairs = [
            min(a, b) if are_equal(i, j) else min(n_rows, a * b)
            for (a, i), (b, j) in combinations(groups, 2)
        ]
        of_dense = n_effects * n_dense + n_dense**2  # those of R
        return cls(n_rows * (len(groups) + n_dense), n_effects + sum(pairs) + of_dense)

    @property
    def saves_time(self) -> bool:
        """Whether a product with Q takes less time than the rows, and fits into memory."""
        return self.n_entries < min(self.n_values, SETTINGS.max_entries)


class DesignMatrix:
    """Design matrix with columns of groups, which are sparse, followed by dense columns.

    Parameters
    ----------
    n_rows : int
        N.
    groups : list of (size, index, weights)
        Number of groups, and group and weight of each row, for each classification of the rows.
    dense : list of (matrix, weights)
        Matrices with N rows, or None for a column of ones, and weights of one or N rows.

    Attributes
    ----------
    n_dense : int
        Number of dense columns.
    size : StatisticsSize
    """

    def __init__(
        self,
        n_rows: int,
        groups: Sequence[tuple[int, np.ndarray, np.ndarray]],
        dense: Sequence[tuple[np.ndarray | None, np.ndarray]],
    ) -> None:
        self._groups, self._dense, self._n_rows = list(groups), list(dense), n_rows
        self.n_dense = sum(1 if matrix is None else matrix.shape[1] for matrix, _ in self._dense)
        indices = [(size, index) for size, index, _ in self._groups]
        self.size = StatisticsSize.of(n_rows, indices, self.n_dense, np.array_equal)

    @cached_property
    def _group_columns(self) -> sparse.csr_array:
        """Columns of groups."""
        n = len(self._groups)
        columns, values = np.empty((self._n_rows, n), np.int32), np.empty((self._n_rows, n))
        first = 0
        for i, (size, index, weights) in enumerate(self._groups):
            columns[:, i], values[:, i] = first + index, weights
            first += size
        starts = np.arange(self._n_rows + 1) * n
        shape = self._n_rows, first
        return sparse.csr_array((values.ravel(), columns.ravel(), starts), shape=shape)

    def _chunks(self) -> Iterator[tuple[slice, np.ndarray]]:
        """Dense columns of some rows at a time."""
        for start in range(0, self._n_rows, SETTINGS.rows_per_chunk):
            rows = slice(start, min(start + SETTINGS.rows_per_chunk, self._n_rows))
            columns = [np.empty((rows.stop - start, 0))]
            for matrix, weights in self._dense:
                own = (weights if weights.size == 1 else weights[rows])[:, np.newaxis]
                part = np.ones((rows.stop - start, 1)) if matrix is None else matrix[rows]
                columns.append(part * own)
            yield rows, np.hstack(columns)

    @cached_property
    def _pivoted_qr(self) -> _PivotedQR:
        """QR decomposition of the dense columns, with pivoting, in units of their lengths."""
        factor = np.zeros((1, self.n_dense))
        for _, columns in self._chunks():
            factor = np.linalg.qr(np.vstack([factor, columns]), mode="r")
        lengths = np.sqrt(np.einsum("ij,ij->j", factor, factor))
        lengths[lengths == 0.0] = 1.0
        triangle, order = qr(factor / lengths, mode="r", pivoting=True, check_finite=False)
        rank = int(np.sum(np.abs(np.diagonal(triangle)) > SETTINGS.rounding))
        return _PivotedQR(triangle[:rank], order, lengths)

    @property
    def factor(self) -> np.ndarray:
        """R, with columns in the order of D. Its last rows are zero if D is rank-deficient."""
        triangle, order, lengths = self._pivoted_qr
        factor = np.zeros((self.n_dense, self.n_dense))
        factor[: len(triangle), order] = triangle * lengths[order]
        return factor

    def _orthonormal_chunks(self) -> Iterator[tuple[slice, np.ndarray]]:
        """D R⁻¹, some rows at a time, of the columns that do not depend on others."""
        triangle, order, lengths = self._pivoted_qr
        rank = len(triangle)
        for rows, columns in self._chunks():
            chosen = columns[:, order[:rank]] / lengths[order[:rank]]
            found = np.zeros((len(columns), self.n_dense))
            found[:, :rank] = solve_triangular(
                triangle[:, :rank], chosen.T, trans="T", check_finite=False
            ).T
            yield rows, found

    def gram(self) -> sparse.csr_array:
        """Upper triangle of Q, of which each row begins with the diagonal."""
        m, n = self._group_columns.shape[1], self.n_dense
        cross_products = np.zeros((m, n))
        for part, dense in self._orthonormal_chunks() if m and n else ():
            cross_products += self._group_columns[part].T @ dense
        of_groups = sparse.coo_array(sparse.triu(self._group_columns.T @ self._group_columns))
        of_dense = np.arange(n) < len(self._pivoted_qr.triangle)
        every, (i, j) = np.arange(m + n), np.indices((m, n))
        values = [of_groups.data, np.zeros(m), of_dense, cross_products.ravel()]
        rows = [of_groups.row, every, i.ravel()]
        columns = [of_groups.col, every, m + j.ravel()]  # of groups without rows, too
        upper = sparse.coo_array(
            (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))),
            shape=(m + n, m + n),
        ).tocsr()
        upper.sum_duplicates()
        return upper

    def times(self, u: np.ndarray) -> np.ndarray:
        """Product with a vector u."""
        m = self._group_columns.shape[1]
        result = self._group_columns @ u[:m]
        for rows, columns in self._chunks():
            result[rows] += columns @ u[m:]
        return result

    def coefficients(self, x: np.ndarray) -> np.ndarray:
        """Return u, given its group coordinates and R u of the dense columns."""
        m = self._group_columns.shape[1]
        triangle, order, lengths = self._pivoted_qr
        rank, of_dense = len(triangle), np.zeros(self.n_dense)
        of_dense[order[:rank]] = solve_triangular(
            triangle[:, :rank], x[m : m + rank], check_finite=False
        )
        return np.concatenate([x[:m], of_dense / lengths])

    def transposed_times(self, y: np.ndarray) -> np.ndarray:
        """Product of a vector with the columns of groups, and with D R⁻¹."""
        triangle, order, lengths = self._pivoted_qr
        rank, of_dense = len(triangle), np.zeros(self.n_dense)
        products = sum(columns.T @ y[rows] for rows, columns in self._chunks()) / lengths
        of_dense[:rank] = solve_triangular(
            triangle[:, :rank], products[order[:rank]], trans="T", check_finite=False
        )
        return np.concatenate([self._group_columns.T @ y, of_dense])


class _PivotedQR(NamedTuple):
    """Triangular factor, of as many rows as the rank, order of its columns, and their lengths."""

    triangle: np.ndarray
    order: np.ndarray
    lengths: np.ndarray


def solve_least_squares(
    design: DesignMatrix, gram: sparse.csr_array, observed: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Approximate a least-squares solution, and return the residuals too.

    The dense columns come first, among them the intercept, then all by iterative refinement with
    conjugate gradients. In this order no part of the intercept is attributed to the effects of
    crossed groups. A small ridge bounds the solution in directions that are not determined.
    """
    diagonal = gram.diagonal()
    scale = np.where(diagonal > 0.0, diagonal, 1.0)
    ridge = SETTINGS.ridge * scale

    def product(x: np.ndarray) -> np.ndarray:
        return gram @ x + gram.T @ x + (ridge - diagonal) * x

    matrix = LinearOperator(gram.shape, product, dtype=float)
    scaling = LinearOperator(gram.shape, lambda x: x / scale, dtype=float)
    right = design.transposed_times(observed)
    right[: len(right) - design.n_dense] = 0.0
    center = design.coefficients(right)
    residuals = observed - design.times(center)
    for _ in range(SETTINGS.n_refinements):
        right = design.transposed_times(residuals)
        step, _ = cg(matrix, right, rtol=1e-8, maxiter=SETTINGS.n_iterations, M=scaling)
        moved = center + design.coefficients(step)
        found = observed - design.times(moved)
        if not found @ found < SETTINGS.max_ratio * (residuals @ residuals):
            break
        center, residuals = moved, found
    return center, residuals
