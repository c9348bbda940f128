r"""Sufficient statistics of normal observations whose mean is linear.

With the mean :math:`o + A u` of N rows, where the design matrix A and the offsets o are data, and u
is a function of the variables, the log-density is

.. math:: -\tfrac{N}{2} \log 2 \pi \sigma^2
    - \tfrac{1}{2 \sigma^2} \big( S - 2 b^\top \delta + \delta^\top Q \delta \big) , \quad
    \delta = u - u_0 , \quad Q = A^\top A , \quad b = A^\top r , \quad S = r^\top r ,

with the residuals :math:`r = y - o - A u_0` at a fixed point :math:`u_0`, close to a least-squares
solution, so that the three terms do not cancel. Q has one entry for each pair of groups that occur
together in a row; its product with a vector replaces the pass over all rows.

The dense columns D of A, such as those of covariates, are replaced by :math:`D R^{-1}` and their
coefficients by :math:`R u`, where R is the triangular factor of a QR decomposition, since the
condition number of :math:`D^\top D` is the square of that of D, which may be large, as for the
powers of a covariate.
"""

from __future__ import annotations

import operator
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable
from scipy import sparse
from scipy.linalg import qr, solve_triangular
from scipy.sparse.linalg import LinearOperator, cg

from pymc_geodesic.densities.compilation import ArrayInput, FixedArray, ResizedArray
from pymc_geodesic.densities.graphs import unoptimized_function
from pymc_geodesic.densities.linear_means import LinearMean, LinearPart, NotLinearError
from pymc_geodesic.densities.log_density import Density, NormalTerm
from pymc_geodesic.ops.quadratic_form import SparseQuadraticForm


@dataclass(frozen=True)
class SufficientStatisticsSettings:
    """Constants of the sufficient statistics.

    Values without a stated source are heuristic; no measurement supports them.

    Attributes
    ----------
    min_rows : int
        Minimum number of rows. A gradient of fewer rows takes about as long as its call.
    max_entries : int
        Upper bound on the number of entries of Q, which take 12 bytes each.
    n_iterations, n_refinements : int
        Maximum number of iterations of conjugate gradients for u₀, which does not have to be exact,
        and of solutions, each for the residuals of the last one.
    min_decrease : float
        Ratio of sums of squared residuals above which a solution does not improve the last one.
    ridge : float
        Ratio of the ridge to the diagonal of Q.
    rounding : float
        Length of the part of a column that does not depend on other columns, divided by its length,
        below which it counts as zero.
    rows_per_chunk : int
        Number of rows of the dense columns of A that are joined at a time.
    """

    min_rows: int = 2_000
    max_entries: int = 50_000_000
    n_iterations: int = 50
    n_refinements: int = 4
    min_decrease: float = 0.99
    ridge: float = 1e-12
    rounding: float = 1e-13
    rows_per_chunk: int = 65_536


SETTINGS = SufficientStatisticsSettings()


def with_sufficient_statistics(
    density: Density, whole_array: Callable[[Any], np.ndarray]
) -> tuple[Density, list[NormalStatistics]]:
    """Replace normal observations by their sufficient statistics where these take less time.

    Parameters
    ----------
    density : Density
    whole_array : callable
        Function that returns the values of one of `Density.arrays`.

    Returns
    -------
    density : Density
        The same log-density; its graphs have the statistics as further inputs.
    statistics : list of NormalStatistics
    """
    found, terms = [], list(density.other_terms)
    for term in density.normal_terms:
        try:
            statistics = NormalStatistics(density, term, whole_array)
        except NotLinearError:
            continue
        terms[term.position] = statistics.log_density
        found.append(statistics)
    return replace(density, other_terms=terms, normal_terms=[]), found


def count_entries(density: Density, n_rows: int) -> int | None:
    """Upper bound on the entries of Q for all rows, from the log-density of a minibatch.

    Parameters
    ----------
    density : Density
        Log-density of the rows of a minibatch.
    n_rows : int
        Number of all rows.

    Returns
    -------
    int or None
        None if statistics cannot replace all rows, or do not save time.
    """
    n_terms, n_entries = len(density.row_terms), 0
    of_rows = [term for term in density.normal_terms if term.position < n_terms]
    if n_rows < SETTINGS.min_rows or len(of_rows) < n_terms:
        return None
    for term in of_rows:
        try:
            parts = _linear_mean(density, term).parts
        except NotLinearError:
            return None
        groups = [(part.size, part.index) for part in parts if part.index is not None]
        size = _Size.of(n_rows, groups, _count_dense(parts), operator.is_)
        if not size.saves_time:
            return None
        n_entries += size.n_entries
    return n_entries


def _linear_mean(density: Density, term: NormalTerm) -> LinearMean:
    """Decompose the mean; the standard deviation has to be the same for all rows."""
    shape = term.value.type.shape
    if len(shape) != 1 or shape[0] in (None, 1) or set(term.sd.type.shape) - {1}:
        raise NotLinearError
    return LinearMean.of(term.mean, shape[0], [*density.coordinates, *density.others.values()])


def _count_dense(parts: Sequence[LinearPart]) -> int:
    return sum(part.size for part in parts if part.index is None)


class _Size(NamedTuple):
    """Number of values of all rows, and an upper bound on the number of entries of Q."""

    n_values: int
    n_entries: int

    @classmethod
    def of(
        cls,
        n_rows: int,
        groups: Sequence[tuple[int, Any]],
        n_dense: int,
        are_equal: Callable[[Any, Any], bool],
    ) -> _Size:
        """Compute both, from the number of groups and the index of each classification."""
        n_effects = sum(size for size, _ in groups)
        pairs = [
            min(a, b) if are_equal(i, j) else min(n_rows, a * b)
            for (a, i), (b, j) in combinations(groups, 2)
        ]
        of_dense = n_effects * n_dense + n_dense**2  # the latter of R
        return cls(n_rows * (len(groups) + n_dense), n_effects + sum(pairs) + of_dense)

    @property
    def saves_time(self) -> bool:
        """Whether a product with Q takes less time than the rows, and fits into memory."""
        return self.n_entries < min(self.n_values, SETTINGS.max_entries)


class NormalStatistics:
    """Sufficient statistics of a normal term.

    Parameters
    ----------
    density : Density
    term : NormalTerm
    whole_array : callable
        See `with_sufficient_statistics`.

    Attributes
    ----------
    name : str
        Name of the observed variable.
    log_density : TensorVariable
        Log-density of all rows, a number.
    inputs : list of ArrayInput
        The statistics: entries, columns and starts of the rows of Q, then b, u₀, S and R.

    Raises
    ------
    NotLinearError
        If the mean is not linear, the standard deviation is not the same for all rows, or the
        product with Q takes longer than the rows.
    """

    def __init__(
        self, density: Density, term: NormalTerm, whole_array: Callable[[Any], np.ndarray]
    ) -> None:
        self.name = term.name
        mean = _linear_mean(density, term)
        self._n_rows, self._checksum = int(term.value.type.shape[0]), 0
        if self._n_rows < SETTINGS.min_rows:
            raise NotLinearError
        self._parts = sorted(mean.parts, key=lambda part: (part.index is None, -part.size))
        self._whole_array, self._arrays = whole_array, list(density.arrays.values())
        self._data = unoptimized_function(
            list(density.arrays),
            [
                reduce(operator.sub, mean.offsets, term.value.astype("float64")),
                *(graph for part in self._parts for graph in _data_of(part)),
            ],
        )
        design, _ = self._design(self._read())
        if not design.size.saves_time:
            raise NotLinearError
        size, n_dense = sum(part.size for part in self._parts), _count_dense(self._parts)
        self.inputs = [
            _input(ResizedArray, "entries", "float64", (None,)),
            _input(ResizedArray, "columns", "int32", (None,)),
            _input(FixedArray, "starts", "int64", (size + 1,)),
            _input(FixedArray, "b", "float64", (size,)),
            _input(FixedArray, "center", "float64", (size,)),
            _input(FixedArray, "square", "float64", ()),
            _input(FixedArray, "factor", "float64", (n_dense, n_dense)),
        ]
        self.log_density = self._log_density(term.sd)

    def _log_density(self, sd: TensorVariable) -> TensorVariable:
        entries, columns, starts, b, center, square, factor = (
            each.variable for each in self.inputs
        )
        delta = pt.concatenate([part.vector for part in self._parts]) - center
        n_dense = factor.type.shape[0]
        if n_dense:
            m = delta.type.shape[0] - n_dense
            delta = pt.concatenate([delta[:m], pt.dot(factor, delta[m:])])
        form, _ = SparseQuadraticForm()(entries, columns, starts, delta)
        sd = pt.atleast_1d(sd)[0].astype("float64")
        at_mean = pm.logp(pm.Normal.dist(0.0, sd), 0.0)  # with the check of the parameter
        return self._n_rows * at_mean - (square - 2.0 * pt.dot(b, delta) + form) / (2.0 * sd**2)

    # --- data ------------------------------------------------------------------------------------

    def _read(self) -> list[np.ndarray]:
        return [np.asarray(self._whole_array(each), order="C") for each in self._arrays]

    def refresh(self) -> list[np.ndarray] | None:
        """Compute the values of `inputs` if data have changed; None if they have not."""
        arrays = self._read()
        checksum = 1
        for each in arrays:
            checksum = zlib.crc32(each.reshape(-1).view(np.uint8), checksum)
        if checksum == self._checksum:
            return None
        design, observed = self._design(arrays)
        gram = design.gram()
        with np.errstate(all="ignore"):  # observations that are not finite are reported elsewhere
            center, residuals = _near_solution(design, gram, observed)
            b, square = design.transposed_times(residuals), np.asarray(residuals @ residuals)
        self._checksum = checksum
        starts = gram.indptr.astype(np.int64)
        factor = np.ascontiguousarray(design.factor)
        return [gram.data, gram.indices.astype(np.int32), starts, b, center, square, factor]

    def _design(self, arrays: Sequence[np.ndarray]) -> tuple[_DesignMatrix, np.ndarray]:
        """Design matrix, and observations minus offsets."""
        observed, *data = self._data(*arrays)
        values = iter(data)
        groups: list[tuple[int, np.ndarray, np.ndarray]] = []
        dense = []
        for part in self._parts:
            weights = next(values).astype(float)
            if part.index is not None:
                groups.append((part.size, self._checked(next(values), part.size), weights))
            else:
                dense.append((None if part.matrix is None else next(values), weights))
        return _DesignMatrix(self._n_rows, groups, dense), observed.astype(float)

    def _checked(self, index: np.ndarray, size: int) -> np.ndarray:
        """Return an index without negative numbers."""
        out_of_bounds = index[(index < -size) | (index >= size)]
        if out_of_bounds.size:
            raise IndexError(
                f"index {out_of_bounds[0]} in the mean of {self.name!r} is out of bounds for an "
                f"array of {size} entries. Correct the index"
            )
        return index.astype(np.int64) % size


def _input(
    kind: type[ArrayInput], name: str, dtype: str, shape: tuple[int | None, ...]
) -> ArrayInput:
    variable = pt.tensor(name, dtype=dtype, shape=shape)
    return kind(variable, variable.type.shape)


def _data_of(part: LinearPart) -> list[TensorVariable]:
    """Weights of a part, and its index or matrix."""
    weights = reduce(operator.mul, part.weights, pt.ones(1))
    return [weights, *(each for each in (part.index, part.matrix) if each is not None)]


class _DesignMatrix:
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
    size : _Size
    """

    def __init__(
        self,
        n_rows: int,
        groups: Sequence[tuple[int, np.ndarray, np.ndarray]],
        dense: Sequence[tuple[np.ndarray | None, np.ndarray]],
    ) -> None:
        self._groups, self._dense, self._n_rows = list(groups), list(dense), n_rows
        self._n_dense = sum(1 if matrix is None else matrix.shape[1] for matrix, _ in self._dense)
        indices = [(size, index) for size, index, _ in self._groups]
        self.size = _Size.of(n_rows, indices, self._n_dense, np.array_equal)

    @cached_property
    def _of_groups(self) -> sparse.csr_array:
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
    def _decomposition(self) -> _Decomposition:
        """QR decomposition of the dense columns, with pivoting, in units of their lengths."""
        factor = np.zeros((1, self._n_dense))
        for _, columns in self._chunks():
            factor = np.linalg.qr(np.vstack([factor, columns]), mode="r")
        lengths = np.sqrt(np.einsum("ij,ij->j", factor, factor))
        lengths[lengths == 0.0] = 1.0
        triangle, order = qr(factor / lengths, mode="r", pivoting=True, check_finite=False)
        rank = int(np.sum(np.abs(np.diagonal(triangle)) > SETTINGS.rounding))
        return _Decomposition(triangle[:rank], order, lengths)

    @property
    def factor(self) -> np.ndarray:
        """R with the columns in the order of D, and zeros in the last rows if it has fewer."""
        triangle, order, lengths = self._decomposition
        factor = np.zeros((self._n_dense, self._n_dense))
        factor[: len(triangle), order] = triangle * lengths[order]
        return factor

    def _orthonormal_chunks(self) -> Iterator[tuple[slice, np.ndarray]]:
        """D R⁻¹, some rows at a time, of the columns that do not depend on others."""
        triangle, order, lengths = self._decomposition
        rank = len(triangle)
        for rows, columns in self._chunks():
            chosen = columns[:, order[:rank]] / lengths[order[:rank]]
            found = np.zeros((len(columns), self._n_dense))
            found[:, :rank] = solve_triangular(
                triangle[:, :rank], chosen.T, trans="T", check_finite=False
            ).T
            yield rows, found

    def gram(self) -> sparse.csr_array:
        """Upper triangle of Q, of which each row begins with the diagonal."""
        m, n = self._of_groups.shape[1], self._n_dense
        between = np.zeros((m, n))
        for part, dense in self._orthonormal_chunks():
            between += self._of_groups[part].T @ dense
        of_groups = sparse.coo_array(sparse.triu(self._of_groups.T @ self._of_groups))
        of_dense = np.arange(n) < len(self._decomposition.triangle)
        every, (i, j) = np.arange(m + n), np.indices((m, n))
        values = [of_groups.data, np.zeros(m), of_dense, between.ravel()]
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
        m = self._of_groups.shape[1]
        result = self._of_groups @ u[:m]
        for rows, columns in self._chunks():
            result[rows] += columns @ u[m:]
        return result

    def coefficients(self, x: np.ndarray) -> np.ndarray:
        """Return u, of which the coordinates of dense columns in x are R u."""
        m = self._of_groups.shape[1]
        triangle, order, lengths = self._decomposition
        rank, of_dense = len(triangle), np.zeros(self._n_dense)
        of_dense[order[:rank]] = solve_triangular(
            triangle[:, :rank], x[m : m + rank], check_finite=False
        )
        return np.concatenate([x[:m], of_dense / lengths])

    def transposed_times(self, y: np.ndarray) -> np.ndarray:
        """Product of a vector with the columns of groups, and with D R⁻¹."""
        dense = sum(columns.T @ y[rows] for rows, columns in self._orthonormal_chunks())
        return np.concatenate([self._of_groups.T @ y, dense])


class _Decomposition(NamedTuple):
    """Triangular factor, of as many rows as the rank, order of its columns, and their lengths."""

    triangle: np.ndarray
    order: np.ndarray
    lengths: np.ndarray


def _near_solution(
    design: _DesignMatrix, gram: sparse.csr_array, observed: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Approximate a least-squares solution, and return the residuals too.

    Iterative refinement by conjugate gradients, while the sum of squares decreases. A small ridge
    bounds the solution in directions that are not determined.
    """
    diagonal = gram.diagonal()
    scale = np.where(diagonal > 0.0, diagonal, 1.0)
    ridge = SETTINGS.ridge * scale

    def product(x: np.ndarray) -> np.ndarray:
        return gram @ x + gram.T @ x + (ridge - diagonal) * x

    matrix = LinearOperator(gram.shape, product, dtype=float)
    scaling = LinearOperator(gram.shape, lambda x: x / scale, dtype=float)
    center, residuals = np.zeros(len(scale)), observed
    for _ in range(SETTINGS.n_refinements):
        right = design.transposed_times(residuals)
        step, _ = cg(matrix, right, rtol=1e-8, maxiter=SETTINGS.n_iterations, M=scaling)
        moved = center + design.coefficients(step)
        found = observed - design.times(moved)
        if not found @ found < SETTINGS.min_decrease * (residuals @ residuals):
            break
        center, residuals = moved, found
    return center, residuals
