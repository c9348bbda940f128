"""Test for heterogeneous row blocks, which indicate that rows are not in random order."""

from __future__ import annotations

import multiprocessing
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from pymc_geodesic.failure_modes import see

FALSE_ALARM_PROBABILITY = 1e-3
"""Upper bound on the probability of a warning for rows in random order."""

MAX_GROUPS = 256
"""Maximum number of groups of consecutive blocks whose means are stored; then pairs are merged."""

_TAIL = 2 / 3
"""Factor of R t in Bernstein's inequality."""

_PIECE_BYTES = 2**20
"""Size of the parts in which rows are summed, in bytes."""


@dataclass(frozen=True)
class BlockDifference:
    """The column and the blocks with the largest deviation.

    Attributes
    ----------
    name : str
        Data container.
    column : int or None
        None for one-dimensional data.
    first, last : int
        Numbers of the blocks, from 1.
    n_sds, n_standard_errors : float
        Deviation of their mean from that of all rows, in standard deviations of the column, and in
        standard errors for rows in random order.
    n_columns : int
        Number of columns with a significant deviation.
    """

    name: str
    column: int | None
    first: int
    last: int
    n_sds: float
    n_standard_errors: float
    n_columns: int

    def __str__(self) -> str:
        column = f"column {self.column} of " if self.column is not None else ""
        here = f"block {self.first}"
        if self.last != self.first:
            here = f"blocks {self.first} to {self.last}"
        others = f", and {self.n_columns - 1} more columns differ" if self.n_columns > 1 else ""
        return (
            f"the rows of batches= are not in random order: the mean of {column}{self.name!r} in "
            f"{here} differs from that of all rows so far by {self.n_sds:.2g} standard "
            f"deviations, {self.n_standard_errors:.0f} standard errors{others}. Chains drift "
            "between the posteriors of different blocks. Write the rows in random order with "
            "datasets.shuffle_rows(source, target)"
        )


class BlockMeans:
    r"""Comparison of the column means of consecutive blocks with those of all rows.

    If the rows are in random order, the rows of some blocks are a sample without replacement of all
    rows. The mean of n such values deviates by t or more with probability

    .. math:: P(|\bar x_U - \bar x| \ge t) \le 2 \exp\left(-\frac{n t^2}{2\sigma^2 + 2Rt/3}\right),

    where σ² is the variance of the column and R its largest distance from its mean: Bernstein's
    inequality, which Hoeffding (1963, section 6) extends to samples without replacement. It holds
    for every column, including rare indicators and heavy tails. The test is applied to blocks,
    pairs of blocks, runs of four and so on, to detect a slow drift as well as a single block, and
    the probability is divided among all runs, columns and repetitions (Bonferroni).

    Attributes
    ----------
    is_done : bool
        Whether the test is finished.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.minibatches.heterogeneous_blocks import BlockMeans
    >>> labels = np.repeat([-1.0, 1.0], 500)
    >>> means = BlockMeans()
    >>> for number, block in enumerate(np.split(labels, 10)):
    ...     means.add_block(number, number + 1, {"y": block})
    >>> found = means.test()
    >>> found.name, found.first, found.last
    ('y', 1, 4)
    """

    def __init__(self) -> None:
        self.is_done = False
        self._n_tests = 0
        self._next_test = 2
        self._per_group = 1
        self._seen: set[int] = set()
        self._ends: list[tuple[int, int]] = []
        self._lengths: list[int] = []
        self._sums: list[np.ndarray] = []
        self._columns: list[tuple[str, int | None]] = []

    def add_block(self, begin: int, end: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Add the rows of a block, or of several joined blocks.

        Parameters
        ----------
        begin, end : int
            Number of blocks before it, and including it. Blocks that were added before are ignored.
        arrays : mapping of str to ndarray, shape (n, ...)
        """
        n = len(next(iter(arrays.values()), ()))
        if not n or begin in self._seen:
            return
        flat = {name: array.reshape(n, -1) for name, array in arrays.items()}
        if not self._columns:
            self._begin(arrays, flat)
        if len(self._seen) % self._per_group:
            self._ends[-1] = (self._ends[-1][0], end)
            self._lengths[-1] += n
            self._sums[-1] += self._sum(flat, n)
        else:
            if len(self._sums) == MAX_GROUPS:
                self._join_pairs()
            self._ends.append((begin, end))
            self._lengths.append(n)
            self._sums.append(self._sum(flat, n))
        self._seen.add(begin)

    def _begin(self, arrays: Mapping[str, np.ndarray], flat: Mapping[str, np.ndarray]) -> None:
        for name, array in arrays.items():
            columns = range(flat[name].shape[1]) if array.ndim > 1 else [None]
            self._columns += [(name, column) for column in columns]
        # the shift avoids cancellation for squares of large and nearly equal values
        self._shift = np.concatenate([rows[0] for rows in flat.values()]).astype(float)
        self._squares = np.zeros_like(self._shift)
        self._least, self._most = np.zeros((2, self._shift.size))

    def _sum(self, flat: Mapping[str, np.ndarray], n: int) -> np.ndarray:
        """Sum the shifted rows; accumulate squares and extremes over all blocks."""
        total = np.zeros_like(self._shift)
        piece = max(1, _PIECE_BYTES // (8 * self._shift.size))
        for start in range(0, n, piece):
            parts = [rows[start : start + piece] for rows in flat.values()]
            rows = np.concatenate(parts, axis=1, dtype=float)
            rows -= self._shift
            total += rows.sum(axis=0)
            self._squares += np.einsum("ij,ij->j", rows, rows)
            np.minimum(self._least, rows.min(axis=0), out=self._least)
            np.maximum(self._most, rows.max(axis=0), out=self._most)
        return total

    def _join_pairs(self) -> None:
        pairs = range(0, MAX_GROUPS, 2)
        self._per_group *= 2
        self._ends = [(self._ends[i][0], self._ends[i + 1][1]) for i in pairs]
        self._lengths = [sum(self._lengths[i : i + 2]) for i in pairs]
        self._sums = [np.sum(self._sums[i : i + 2], axis=0) for i in pairs]

    @property
    def n_rows(self) -> int:
        """Number of rows that were added."""
        return sum(self._lengths)

    def test(self) -> BlockDifference | None:
        """Return the blocks with the largest deviation, if it is significant."""
        self._n_tests += 1
        groups = len(self._sums)
        if groups < 2:
            return None
        n = np.concatenate([[0], np.cumsum(self._lengths)])
        sums = np.concatenate([[0 * self._shift], np.cumsum(self._sums, axis=0)])
        mean = sums[-1] / n[-1]
        variance = self._squares / n[-1] - mean**2
        varies = variance > 1e-12 * self._squares / n[-1]
        if not varies.any():
            return None
        largest = np.maximum(self._most - mean, mean - self._least)
        first, last = _runs(groups)
        lengths = (n[last] - n[first])[:, None]
        shift = np.abs((sums[last] - sums[first]) / lengths - mean)
        with np.errstate(invalid="ignore", divide="ignore"):
            exponent = lengths * shift**2 / (2 * variance + _TAIL * largest * shift)
        exponent[:, ~varies] = -np.inf
        n_comparisons = 2 * len(first) * int(varies.sum())
        needed = np.log(n_comparisons * 2.0**self._n_tests / FALSE_ALARM_PROBABILITY)
        run, column = np.unravel_index(np.argmax(exponent), exponent.shape)
        if exponent[run, column] <= needed:
            return None
        n_sds = float(shift[run, column] / np.sqrt(variance[column]))
        share = float(lengths[run, 0] / n[-1])
        name, number = self._columns[column]
        return BlockDifference(
            name,
            number,
            self._ends[first[run]][0] + 1,
            self._ends[last[run] - 1][1],
            n_sds,
            n_sds * float(np.sqrt(lengths[run, 0] / (1 - share))),
            int((exponent > needed).any(axis=0).sum()),
        )

    def warn(self, *, is_last: bool) -> None:
        """Warn if blocks differ, and finish after a warning or the last test."""
        found = self.test()
        self.is_done = is_last or found is not None
        if found is not None and _is_first_chain():
            warnings.warn(see(str(found), "unlike-blocks"), UserWarning, stacklevel=2)
        if self.is_done:
            self._seen, self._sums = set(), []

    def check_periodically(self, n_rows: int) -> None:
        """Test after two blocks, each time their number has doubled, and after all rows."""
        seen = len(self._seen)
        if self.n_rows >= n_rows:
            self.warn(is_last=True)
        elif seen >= self._next_test:
            self._next_test = 2 * seen
            self.warn(is_last=False)


def _is_first_chain() -> bool:
    """Whether this process issues the warning; only one does, as chains have the same blocks."""
    _, of_chain, number = multiprocessing.current_process().name.rpartition("worker_chain_")
    return not of_chain or number == "0"


def _runs(groups: int) -> tuple[np.ndarray, np.ndarray]:
    """List first and last (exclusive) group of runs of 1, 2, 4, ... groups, fewer than all."""
    first, last, length = [], [], 1
    while length < groups:
        starts = np.arange(0, groups, length)
        first.append(starts)
        last.append(np.minimum(starts + length, groups))
        length *= 2
    return np.concatenate(first), np.concatenate(last)


def compare_blocks(
    parts: Iterator[tuple[dict[str, np.ndarray], int]], means: BlockMeans
) -> Iterator[tuple[dict[str, np.ndarray], int]]:
    """Iterate over the blocks of a pass over all rows, and warn at the end if they differ.

    Parameters
    ----------
    parts : iterator of (arrays, n_rows)
    means : BlockMeans
        The test of the stream, which is finished after the pass.
    """
    own = BlockMeans()
    for number, (arrays, n_rows) in enumerate(parts):
        own.add_block(number, number + 1, {name: rows[:n_rows] for name, rows in arrays.items()})
        yield arrays, n_rows
    if not means.is_done:
        means.is_done = True
        own.warn(is_last=True)
