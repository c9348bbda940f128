"""Factorization of sparse precision matrices by successive elimination of groups of effects.

A group whose entries are independent of each other, given all other coordinates, has a diagonal
block, and its elimination changes the rest of the matrix by a sparse product: the Schur complement
Q_rr − Q_rg Q_gg⁻¹ Q_gr. When no such group is left, the remaining coordinates have a dense Cholesky
factor.

An effect x = E y that sums to zero has the precision Eᵀ Q E in its coordinates y, which is dense.
Before, the matrix has a row for each of the n entries of x, so that rows of other groups stay
sparse.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.linalg import LinAlgError, cholesky

from pymc_geodesic.gradients.partial_centering import TriangularFactor
from pymc_geodesic.runtime.jit import compiled

_log = logging.getLogger("pymc")


@dataclass(frozen=True)
class FactorizationSettings:
    """Constants of the factorization.

    Attributes
    ----------
    max_dense : int
        Maximum number of coordinates with a dense factor, 32 MB.
    max_fill : float
        Maximum number of scalar products for the elimination of one group if more coordinates
        remain. They take about a second.
    dense_share : float
        Share of nonzero products of couplings above which they are computed as dense ones: with
        2,000 remaining coordinates, sparse products took 20 times as long at a share of 1, and
        dense ones 50 times as long at 0.0001.
    smallest_precision : float
        Lower bound on the precision of a coordinate.
    smallest_share : float
        Lower bound on the ratio of the precision of a coordinate given the dense ones to that given
        all others.
    """

    max_dense: int = 4096
    max_fill: float = 2e8
    dense_share: float = 0.05
    smallest_precision: float = 1e-10
    smallest_share: float = 1e-3


SETTINGS = FactorizationSettings()


@dataclass(frozen=True, eq=False)
class Group:
    """Coordinates that are eliminated together: one column of an effect.

    Attributes
    ----------
    coordinates : ndarray of int
    before : set of int
        Groups that are eliminated earlier, because their prior depends on this one.
    last : int, optional
        For an effect that sums to zero, the row of its last entry, for which there is no
        coordinate.
    """

    coordinates: np.ndarray
    before: frozenset[int]
    last: int | None = None

    @property
    def entries(self) -> np.ndarray:
        """Rows of the precision matrix."""
        return self.coordinates if self.last is None else np.append(self.coordinates, self.last)

    def diagonal(self, precision: np.ndarray) -> np.ndarray:
        """Diagonal of the block of the coordinates, from that of a matrix of all entries."""
        own = precision[self.coordinates]
        if self.last is None:
            return own
        n = len(own) + 1.0
        a = 1.0 / (n + np.sqrt(n))
        return own * (1.0 - 2.0 * a) + a**2 * own.sum() + precision[self.last] / n


def triangular_factor(
    precision: sparse.csr_matrix,
    groups: Sequence[Group],
    others: np.ndarray,
    prior_precision: np.ndarray,
    *,
    logs: bool = True,
) -> TriangularFactor:
    """Factor a sparse precision matrix.

    Where too many coordinates remain for a dense factor, couplings within or between groups of
    effects are set to zero.

    Parameters
    ----------
    precision : csr_matrix, shape (size + n_zero_sums, size + n_zero_sums)
        The last rows are those of the last entries of effects that sum to zero.
    groups : list of Group
    others : ndarray of int
        Coordinates that are not effects; they are eliminated last.
    prior_precision : ndarray, shape (size,)
        Precision of the prior of each effect; zero for others.
    logs : bool
        Whether a message in the log says that couplings are left out.

    Returns
    -------
    TriangularFactor
    """
    elimination = _Elimination(precision, groups, others, logs=logs)
    while (chosen := elimination.next_group()) is not None:
        elimination.eliminate(chosen)
    return elimination.factor(prior_precision)


class _Elimination:
    """Groups that are eliminated so far, and the precision matrix of the other coordinates.

    Attributes
    ----------
    matrix : csr_matrix or ndarray
        Precision of the remaining coordinates, marginal over the eliminated ones. If it is dense,
        no further group is eliminated.
    coordinates : ndarray of int
        Remaining coordinates, in the order of ``matrix``.
    remaining : dict
        Remaining groups, by index.
    """

    def __init__(
        self,
        precision: sparse.csr_matrix,
        groups: Sequence[Group],
        others: np.ndarray,
        *,
        logs: bool,
    ) -> None:
        self._logs = logs
        self.coordinates = np.concatenate([*(group.entries for group in groups), others])
        self.matrix: Any = precision[self.coordinates][:, self.coordinates].tocsr()
        self.remaining = dict(enumerate(groups))
        self._unconditional, self._others = precision.diagonal(), others
        self._zero_sums = [each for each in groups if each.last is not None]
        self._has_children = {k for k, group in enumerate(groups) if group.before}
        self._order: list[np.ndarray] = []
        self._segments: list[tuple[int, int, bool]] = []
        self._rows: list[sparse.csr_matrix] = []
        self._pivots: list[np.ndarray] = []

    def _report(self, where: str) -> None:
        if self._logs:
            _log.info(f"the sparse metric leaves out couplings {where}")

    def _local(self, coordinates: np.ndarray) -> np.ndarray:
        """Return the row indices of some coordinates in ``matrix``."""
        row = np.full(len(self._unconditional), -1)
        row[self.coordinates] = np.arange(len(self.coordinates))
        return row[coordinates]

    def _largest_first(self) -> list[int]:
        """Return the groups that may be next, the largest first."""
        free = [k for k, each in self.remaining.items() if not each.before & self.remaining.keys()]
        return sorted(free, key=lambda k: -len(self.remaining[k].coordinates))

    def _is_diagonal(self, group: int) -> bool:
        """Whether the block of a group is diagonal, up to rounding."""
        rows = self._local(self.remaining[group].coordinates)
        block = self.matrix[rows][:, rows]
        sizes = np.sqrt(block.diagonal())
        entries = block.tocoo()
        off = entries.row != entries.col
        bound = 1e-9 * sizes[entries.row[off]] * sizes[entries.col[off]]
        return bool((np.abs(entries.data[off]) <= bound).all())

    def next_group(self) -> int | None:
        """Return the group to eliminate; None where the rest has a dense factor."""
        if isinstance(self.matrix, np.ndarray):
            return None
        free = [k for k in self._largest_first() if self.remaining[k].last is None]
        diagonal = next((k for k in free if self._is_diagonal(k)), None)
        if diagonal is None and free and len(self.coordinates) > SETTINGS.max_dense:
            self._report("within a group of effects")
            return free[0]
        return diagonal

    def _append(self, group: int) -> None:
        """Append a group to the order of elimination."""
        coordinates = self.remaining.pop(group).coordinates
        start = self._segments[-1][1] if self._segments else 0
        self._segments.append((start, start + len(coordinates), group in self._has_children))
        self._order.append(coordinates)

    def _couples_all(self, group: int, coupling: sparse.csr_matrix, later: np.ndarray) -> bool:
        """Whether the elimination of a group couples entries within each of the other groups."""
        others = [each.coordinates for k, each in self.remaining.items() if k != group]
        is_nonzero = (coupling != 0.0).astype(float)
        return all(
            (is_nonzero @ np.isin(self.coordinates[later], each)).max(initial=0.0) > 1.0
            for each in others
        )

    def eliminate(self, group: int) -> None:
        """Replace the matrix by the Schur complement of a group with a diagonal block."""
        own = self._local(self.remaining[group].coordinates)
        later = np.setdiff1d(np.arange(len(self.coordinates)), own)
        pivot = np.maximum(self.matrix.diagonal()[own], SETTINGS.smallest_precision)
        coupling = self.matrix[own][:, later].tocsr()
        fill = float(np.square(np.diff(coupling.indptr).astype(float)).sum())
        is_dense = len(later) <= SETTINGS.max_dense and (
            fill > SETTINGS.max_fill or self._couples_all(group, coupling, later)
        )
        if fill > SETTINGS.max_fill and not is_dense:
            self._report("between groups of effects")
            is_other = np.isin(self.coordinates[later], self._others)
            coupling = (coupling @ sparse.diags(is_other.astype(float))).tocsr()
            coupling.eliminate_zeros()
        scaled = (sparse.diags(1.0 / pivot) @ coupling).tocsr()
        rest = self.matrix[later][:, later]
        if is_dense:
            self.matrix = rest.toarray()
            if fill > SETTINGS.dense_share * len(own) * len(later) ** 2:
                self.matrix -= _dense_product(coupling, scaled)
            else:
                _subtract_product(scaled, coupling, self.matrix)
        else:
            self.matrix = (rest - coupling.T @ scaled).tocsr()
        self.coordinates = self.coordinates[later]
        scaled.indices = self.coordinates[scaled.indices]  # columns are coordinates of the model
        self._rows.append(scaled)
        self._pivots.append(pivot)
        self._append(group)

    def factor(self, prior_precision: np.ndarray) -> TriangularFactor:
        """Return the factor, with a dense one of the remaining coordinates."""
        n_eliminated = len(self._order)
        while self.remaining:
            self._append(self._largest_first()[0])
        start = self._segments[-1][1] if self._segments else 0
        self._segments.append((start, start + len(self._others), True))
        self._order.append(self._others)
        last = np.concatenate(self._order[n_eliminated:])
        lower = _lower_factor(*self._dense_precision(last))
        pivots = np.diagonal(lower).copy()
        order = np.concatenate(self._order).astype(np.int64)
        position = np.arange(len(self._unconditional))
        position[order] = np.arange(len(order))
        first = [position[each.coordinates[0]] for each in self._zero_sums]
        zero_sums = [
            (start, start + len(each.coordinates))
            for start, each in zip(first, self._zero_sums, strict=True)
        ]
        counts = [np.zeros(1, dtype=np.int64), *(np.diff(each.indptr) for each in self._rows)]
        for each in self._rows:
            each.indices = position[each.indices]
            each.has_sorted_indices = False
            each.sort_indices()
        columns = [np.empty(0), *(each.indices for each in self._rows)]
        couplings = [np.empty(0), *(each.data for each in self._rows)]
        prior = prior_precision[order]
        weight = np.maximum(np.concatenate([*self._pivots, pivots**2]) - prior, 0.0)
        return TriangularFactor(
            order=order,
            segments=np.array(self._segments, dtype=np.int64),
            starts=np.cumsum(np.concatenate(counts), dtype=np.int64),
            columns=np.concatenate(columns).astype(np.uint32),
            couplings=np.concatenate(couplings).astype(np.float32),
            zero_sums=np.array(zero_sums, dtype=np.int64).reshape(-1, 2),
            dense=_above_diagonal((lower.T / pivots[:, np.newaxis]).astype(np.float32, order="C")),
            precision=weight + prior,
            weight=weight,
        )

    def _dense_precision(self, coordinates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the precision matrix of remaining coordinates, and its unconditional diagonal."""
        matrix = self.matrix if isinstance(self.matrix, np.ndarray) else self.matrix.toarray()
        unconditional = self._unconditional.copy()
        for each in self._zero_sums:
            unconditional[each.coordinates] = each.diagonal(self._unconditional)
            *own, last = self._local(each.entries)
            n = len(own) + 1.0
            for rows in (matrix, matrix.T):  # Eᵀ Q, then Eᵀ Q E
                rows[own] -= rows[own].sum(axis=0) / (n + np.sqrt(n)) + rows[last] / np.sqrt(n)
        rows = self._local(coordinates)
        return matrix[np.ix_(rows, rows)], unconditional[coordinates]


def _above_diagonal(matrix: np.ndarray) -> np.ndarray:
    """Return the entries above the diagonal, one row after the other."""
    return matrix[~np.tri(len(matrix), dtype=bool)]


def _dense_product(left: sparse.csr_matrix, right: sparse.csr_matrix) -> np.ndarray:
    """Return leftᵀ right, by dense products of chunks of rows."""
    total = np.zeros((left.shape[1], right.shape[1]))
    for start in range(0, left.shape[0], 1024):
        total += left[start : start + 1024].toarray().T @ right[start : start + 1024].toarray()
    return total


def _subtract_product(
    scaled: sparse.csr_matrix, coupling: sparse.csr_matrix, out: np.ndarray
) -> None:
    """Subtract couplingᵀ scaled, which is symmetric, from a symmetric dense matrix.

    Every entry of ``scaled`` is one of ``coupling``.
    """
    left = scaled.tocsc()
    columns = (left.indptr, left.indices.astype(np.uint32), left.data)
    coupling.sort_indices()
    _subtract_above_diagonal(
        columns, coupling.indptr, coupling.indices.astype(np.uint32), coupling.data, out
    )


@compiled
def _subtract_above_diagonal(
    columns: tuple[np.ndarray, np.ndarray, np.ndarray],
    starts: np.ndarray,
    indices: np.ndarray,
    values: np.ndarray,
    out: np.ndarray,
) -> None:
    """Subtract the symmetric product of a transposed matrix and another one, in place.

    The left one is given as starts, row indices and values of its columns, the right one by rows,
    with sorted indices and all entries of the left one. The entries above the diagonal are computed
    and copied; those computed below it, where the left one has fewer entries, are overwritten.
    """
    starts_left, rows, left_values = columns
    first = starts.copy()  # in each row of the right matrix, its first entry from the diagonal on
    for i in range(starts_left.size - 1):
        row = out[i]
        for j in range(starts_left[i], starts_left[i + 1]):
            r, value = rows[j], left_values[j]
            for k in range(np.uintp(first[r]), np.uintp(starts[r + 1])):
                row[np.uintp(indices[k])] -= value * values[k]
            first[r] += 1
    for i in range(out.shape[0]):
        for j in range(i):
            out[i, j] = out[j, i]


def _lower_factor(matrix: np.ndarray, unconditional: np.ndarray) -> np.ndarray:
    """Cholesky factor, of the matrix with a larger diagonal if it is not positive definite.

    ``unconditional`` is the diagonal before the elimination of other coordinates.

    Away from the mode, the observed information need not be positive definite. The smallest
    sufficient addition to the diagonal leaves a direction with almost no precision; twice as much
    is added.
    """
    smallest = np.maximum(SETTINGS.smallest_share * unconditional, SETTINGS.smallest_precision)
    scale = np.sqrt(np.maximum(np.diagonal(matrix), smallest))
    correlations = matrix / scale
    correlations /= scale[:, np.newaxis]
    np.fill_diagonal(correlations, 1.0)
    try:
        factor = cholesky(correlations, lower=True)
        factor *= scale[:, np.newaxis]
        return factor
    except LinAlgError:
        pass
    identity = np.eye(len(matrix))
    for ridge in 0.01 * 2.0 ** np.arange(20):
        try:
            cholesky(correlations + ridge * identity, lower=True)
        except LinAlgError:
            continue
        factor = cholesky(correlations + 2.0 * ridge * identity, lower=True)
        return factor * scale[:, np.newaxis]
    return np.diag(scale)
