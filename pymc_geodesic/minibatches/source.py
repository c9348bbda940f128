"""Interface of minibatch sources, the source of all rows, and example rows for checks.

A source has arrays, and returns the position of the first row of the minibatch of each inner step.
The compiled gradient reads the rows from these arrays.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import IntEnum
from itertools import combinations
from operator import is_
from types import MappingProxyType
from typing import Any

import numpy as np
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable

from pymc_geodesic.failure_modes import see
from pymc_geodesic.minibatches.row_inputs import (
    DrawnRows,
    RowIndex,
    RowInputs,
    container_values,
    evaluate_data,
)


def check_numbers(name: str, array: np.ndarray, bounds: Collection[str] = ()) -> None:
    """Check that data do not contain NaN, infinity, or values whose squares overflow.

    Parameters
    ----------
    name : str
    array : ndarray
    bounds : collection of str
        Data that may contain infinity, since they are bounds of censored observations.

    Raises
    ------
    ValueError
        If they do; the message names the container.
    """
    if undefined := describe_undefined(array[~np.isinf(array)] if name in bounds else array):
        what, remedy = undefined
        message = f"data container {name!r} contains {what}: {remedy}"
        raise ValueError(see(message, "missing-values"))


def check_shape(name: str, array: np.ndarray, expected: tuple[int | None, ...]) -> None:
    """Check that data have the shape for which a step was created; None is any length.

    Raises
    ------
    ValueError
        If they do not; the message names the container.
    """
    lengths = zip(expected, array.shape, strict=True)
    if any(length not in (None, now) for length, now in lengths):
        message = (
            f"data container {name!r} had shape {expected} when this step was created and has "
            f"{array.shape} now. Create the step again"
        )
        raise ValueError(see(message, "changed-data"))


def describe_undefined(array: np.ndarray) -> tuple[str, str] | None:
    """Describe NaN, infinite or too large values of an array, and a remedy; None without any.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.minibatches.source import describe_undefined
    >>> describe_undefined(np.array([1.0, np.nan]))
    ('NaN', 'drop or impute those rows first')
    >>> describe_undefined(np.array([1.0, 2.0])) is None
    True
    """
    if array.dtype.kind != "f" or not array.size:
        return None
    largest = max(array.max(), -array.min())
    if largest <= np.sqrt(np.finfo(array.dtype).max):
        return None
    if np.isnan(largest):
        return "NaN", "drop or impute those rows first"
    if np.isinf(largest):
        return (
            "infinity",
            "drop those rows first, or use finite values",
        )
    return f"{largest:.2g}, whose square overflows", "rescale it, or drop those rows first"


class RandomStream(IntEnum):
    """Second number of the seed of each generator, after the seed of the chain."""

    OFFSET = 0
    EPOCH = 1
    RANDOM_ROWS = 2
    INDEPENDENT_ROWS = 3
    BLOCK_ORDER = 4
    FIRST_BLOCK = 5
    GROUPS = 6
    BUFFER = 7


class RowSource(ABC):
    """Source of minibatches.

    Attributes
    ----------
    arrays : dict of str to ndarray
        Rows in memory, C-contiguous. `next_starts` returns positions in these arrays.
    batch_size : int
        Number of rows of a minibatch.
    n_rows : int
        N, the number of rows of the data.
    with_replacement : bool
        Whether a minibatch may contain a row twice.
    replaces_arrays : bool
        Whether `next_starts` may replace ``arrays``.
    has_all_rows : bool
        Whether there are no minibatches, and gradients are those of all rows.
    has_epochs : bool
        Whether each epoch contains every row once, so that its gradient noise sums to zero.
    stays_in_blocks : bool
        Whether consecutive minibatches come from the same block of rows, so that their noise is
        correlated.
    is_streamed : bool
        Whether rows are not in memory, but are read and checked during sampling.
    whole : dict of str to ndarray
        Arrays that are indexed by the rows, such as the values of a sparse matrix, by the names of
        the data containers that they replace.
    drawn : mapping of (generator, int) to RowInput
        Rows drawn by `pymc.Minibatch` in a model.
    n_changes : int
        Number of times that `refresh` has found changed data.
    """

    arrays: dict[str, np.ndarray]
    batch_size: int
    n_rows: int
    with_replacement: bool = False
    replaces_arrays: bool = True
    has_all_rows: bool = False
    has_epochs: bool = False
    stays_in_blocks: bool = False
    is_streamed: bool = False
    drawn: DrawnRows = MappingProxyType({})
    _containers: Mapping[str, Variable] = MappingProxyType({})
    _bounds: Collection[str] = ()

    def __init__(self) -> None:
        self.whole: dict[str, np.ndarray] = {}
        self.n_changes = 0

    @property
    def names(self) -> tuple[str, ...]:
        """Data containers of the rows; none for `pymc.Minibatch`."""
        return () if self.drawn else tuple(self.arrays)

    def row_inputs(self, n_rows: int | None = None) -> RowInputs:
        """Return the inputs for blocks of rows, by default of minibatches."""
        if self.drawn:
            return RowInputs(drawn=self.drawn, n_rows=n_rows, whole=tuple(self.whole))
        size = self.batch_size if self.arrays and n_rows is None else n_rows
        return RowInputs(self.arrays, n_rows=size, whole=tuple(self.whole))

    @property
    def epoch(self) -> int | None:
        """Number of minibatches of an epoch, in random order; None without epochs."""
        return None

    def track_containers(
        self, containers: Mapping[str, Variable], bounds: Collection[str] = ()
    ) -> None:
        """Track the data containers from which the rows were copied, for `refresh`.

        Parameters
        ----------
        containers : mapping of str to Variable
        bounds : collection of str
            See `check_numbers`.
        """
        self._containers, self._bounds = dict(containers), bounds
        self._copied: dict[str, list[np.ndarray]] = {
            name: container_values(each) for name, each in containers.items()
        }

    def check_indices(self, indices: Sequence[RowIndex]) -> None:
        """Check the bounds of indices in all rows when they are read.

        Parameters
        ----------
        indices : list of RowIndex
            Indices; empty for rows in memory, which
            `pymc_geodesic.densities.row_dependence.IndexCheck` checks.
        """
        if indices:
            raise NotImplementedError(f"{type(self).__name__} does not check indices")

    def refresh(self) -> None:
        """Copy the rows of containers whose values have been changed by `pymc.set_data`.

        Raises
        ------
        ValueError
            If they have another shape, contain NaN or infinity, or are a sparse matrix.
        """
        for name, container in self._containers.items():
            behind = container_values(container)
            if all(map(is_, behind, self._copied[name])):
                continue
            if name not in self.arrays:
                message = f"the sparse data {name!r} have changed. Create the step again"
                raise ValueError(see(message, "changed-data"))
            value = evaluate_data(container)
            check_shape(name, value, (self.n_rows, *self.arrays[name].shape[1:]))
            check_numbers(name, value, self._bounds)
            self.replace_rows(name, value)
            self._copied[name] = behind
            self.n_changes += 1

    def replace_rows(self, name: str, rows: np.ndarray) -> None:
        """Replace the rows of a container.

        Parameters
        ----------
        name : str
        rows : ndarray, shape (n_rows, ...)
            Rows in the order of the container.
        """
        raise NotImplementedError(f"{type(self).__name__} copies no rows of data containers")

    def reorder_entries(
        self, name: str, values: np.ndarray, columns: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Sort the entries of a sparse matrix in the order of its rows.

        Parameters
        ----------
        name : str
            Name in ``arrays`` of the start and stop indices of each row.
        values, columns : ndarray, shape (n_entries,)
            Returned unchanged if the rows are in their original order.
        """
        return values, columns

    def whole_array(self, holder: np.ndarray | SharedVariable) -> np.ndarray:
        """Return data without minibatches: a constant, or the value of a data container."""
        if isinstance(holder, np.ndarray):
            return holder
        if holder.name in self.whole:
            return self.whole[holder.name]
        return np.asarray(holder.get_value(borrow=True))

    def example_rows(self, n: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Choose random rows of the data with replacement, with a fixed seed.

        Returns
        -------
        arrays, whole : dict of str to ndarray
            ``n`` rows of each of ``arrays``, and the arrays that are indexed by them.
        """
        arrays, whole, _ = self._examples()
        rows = np.random.default_rng(0).integers(len(next(iter(arrays.values()))), size=n)
        return {name: array[rows] for name, array in arrays.items()}, whole

    def related_examples(self, n: int) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
        """Choose rows that are dependent in some models; see `_related_rows`.

        Yields
        ------
        description : str
            Property that the rows have in common.
        arrays : dict of str to ndarray
            ``n`` rows of each of ``arrays``.
        """
        arrays, _, numbers = self._examples()
        for description, rows in _related_rows(arrays, n, numbers):
            yield description, {name: array[rows] for name, array in arrays.items()}

    def sample_rows(self, n: int) -> tuple[dict[str, np.ndarray], int]:
        """Choose representative rows with a fixed seed; return them and their number."""
        return self.example_rows(n)[0], n

    def all_rows(self) -> Iterator[tuple[dict[str, np.ndarray], int]] | None:
        """Iterate over all rows once, in parts; return None if that is not possible.

        Yields
        ------
        arrays : dict of str to ndarray
            C-contiguous rows by container, valid until the next part.
        n_rows : int
            Number of rows of the part.
        """
        return None

    def _examples(
        self,
    ) -> tuple[Mapping[str, np.ndarray], dict[str, np.ndarray], np.ndarray | None]:
        """Return rows for examples, the arrays that they index, and their original row numbers.

        The row numbers are None if the rows are in their original order.
        """
        return self.arrays, self.whole, None

    @abstractmethod
    def reset(self, seed: int) -> None:
        """Start a chain."""

    @abstractmethod
    def next_starts(self, n: int) -> np.ndarray:
        """Return the positions in ``arrays`` of the next ``n`` minibatches, shape ``(n,)``."""

    @abstractmethod
    def row_indices(self, start: int) -> np.ndarray:
        """Return the indices in the data of the rows of the minibatch at position ``start``."""

    @property
    @abstractmethod
    def state(self) -> dict[str, Any]:
        """State that determines all further minibatches."""

    @state.setter
    @abstractmethod
    def state(self, state: dict[str, Any]) -> None: ...


class StreamedSource(RowSource):
    """Source of rows that are read sequentially from an iterable of blocks."""

    is_streamed = True

    def row_indices(self, start: int) -> np.ndarray:
        """Raise ValueError: local variables need random access to rows."""
        raise ValueError(
            "local= visits the same rows repeatedly, which batches= does not allow. Use "
            "minibatch=[...] and batch_size="
        )


class AllRows(RowSource):
    """Source without minibatches: the log-density contains all rows, and has no blocks."""

    replaces_arrays = False
    has_all_rows = True

    def __init__(self) -> None:
        super().__init__()
        self.arrays = {}
        self.n_rows = self.batch_size = 1
        self._starts = np.zeros(1, dtype=np.int64)

    def reset(self, seed: int) -> None:
        """Do nothing."""

    def next_starts(self, n: int) -> np.ndarray:
        """Return zeros."""
        if self._starts.size != n:
            self._starts = np.zeros(n, dtype=np.int64)
        return self._starts

    def row_indices(self, start: int) -> np.ndarray:
        """Raise ValueError: rows have no numbers."""
        raise ValueError("local= needs rows that are named by minibatch=")

    @property
    def state(self) -> dict[str, Any]:
        """Empty."""
        return {}

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        pass


# --- example rows --------------------------------------------------------------------------------

_RUNS = 2
"""Number of runs of consecutive rows."""

_GROUP_ROWS = 4
"""Maximum number of rows of one group of equal values."""

_DRAWN_GROUPS = 32
"""Number of rows drawn to find groups of two or more rows with equal values. If a fraction p of the
rows belongs to such groups, none is found with probability (1 − p)^32: 3 % for p = 0.1."""

_COLUMNS = 16
"""Maximum number of columns that are searched for integers, and for extreme values."""

_PAIRED_COLUMNS = 4
"""Maximum number of integer columns whose values are also compared in pairs."""

_SHARED_PAIRS = 8
"""Number of pairs of rows with equal values, one row in each part of a random sample, above which
no further related rows are needed."""


def _related_rows(
    arrays: Mapping[str, np.ndarray], n: int, numbers: np.ndarray | None
) -> Iterator[tuple[str, np.ndarray]]:
    """Choose rows that are dependent in models of time series, panels and groups.

    Related rows are adjacent in the result, so that its even and odd elements are two parts that
    share every run and every group. Columns with few distinct values are skipped if two parts of
    random rows share values anyway.

    Parameters
    ----------
    arrays : mapping of str to ndarray, shape (n_rows, ...)
        At least one array.
    n : int
        Number of rows to choose, even.
    numbers : ndarray of int, shape (n_rows,), or None
        Original row number of each row of the arrays; None if they are in the original order.

    Yields
    ------
    description : str
        Property that the rows have in common, with a preposition.
    rows : ndarray of int, shape (n,)
        Positions in the arrays. Rows may be repeated.
    """
    n_rows = len(next(iter(arrays.values()))) if numbers is None else len(numbers)
    if numbers is None:
        numbers = np.arange(n_rows)
    rng = np.random.default_rng(0)
    yield "of consecutive rows", _consecutive(n, numbers, rng)
    sample = rng.integers(n_rows, size=n)
    extreme = _extreme_rows({name: a[:n_rows] for name, a in arrays.items()})[: n // 2]
    with_extremes = sample.copy()
    with_extremes[: 2 * len(extreme) : 2] = extreme
    yield "with the largest and smallest values", with_extremes
    columns = _integer_columns({name: a[:n_rows] for name, a in arrays.items()}, sample)
    paired = []
    for name, column in columns.items():
        if _are_shared([column], sample):
            paired.append(name)
        elif (rows := _with_equal_values([column], n, numbers, rng)) is not None:
            paired.append(name)
            yield f"of rows with equal values of {name}", rows
    for pair in combinations(paired[:_PAIRED_COLUMNS], 2):
        both = [columns[name] for name in pair]
        if not _are_shared(both, sample):
            rows = _with_equal_values(both, n, numbers, rng)
            if rows is not None:
                yield f"of rows with equal values of {pair[0]} and {pair[1]}", rows


def _consecutive(n: int, numbers: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Choose runs of rows that are consecutive in the data."""
    positions = np.empty(len(numbers), dtype=np.int64)
    positions[numbers] = np.arange(len(numbers))
    starts = rng.integers(len(numbers), size=_RUNS)[:, np.newaxis]
    return positions[(starts + np.arange(n // _RUNS)).ravel() % len(numbers)]


def _extreme_rows(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Find the rows with the largest and smallest values of columns.

    A statistic such as ``x.max()`` is the same for nearly all other rows. Integers are skipped,
    since there is a separate check for indices that are out of bounds.
    """
    found: list[int] = []
    for array in sorted(arrays.values(), key=lambda each: each.ndim):
        if array.ndim in (1, 2) and array.size and array.dtype.kind in "bf":
            columns = array.reshape(len(array), -1)[:, :_COLUMNS]
            found += [int(row) for row in (*columns.argmax(axis=0), *columns.argmin(axis=0))]
    return np.array(list(dict.fromkeys(found))[: 2 * _COLUMNS], dtype=np.int64)


def _integer_columns(arrays: Mapping[str, np.ndarray], sample: np.ndarray) -> dict[str, np.ndarray]:
    """Find columns whose values are integers, of any data type, first of one-dimensional arrays."""
    found: dict[str, np.ndarray] = {}
    for name, array in sorted(arrays.items(), key=lambda item: item[1].ndim):
        if array.ndim > 2 or array.dtype.kind not in "iuf":
            continue
        columns = {repr(name): array} if array.ndim == 1 else {}
        for i in range(array.shape[1] if array.ndim == 2 else 0):
            columns[f"column {i} of {name!r}"] = array[:, i]
        for called, column in columns.items():
            if len(found) == _COLUMNS:
                return found
            values = column[sample]
            if np.array_equal(values, np.floor(values)):
                found[called] = np.ascontiguousarray(column)
    return found


def _are_shared(columns: Sequence[np.ndarray], sample: np.ndarray) -> bool:
    """Whether the two parts of a random sample share values."""
    first, second = sample[::2, np.newaxis], sample[1::2]
    equal = first != second
    for column in columns:
        equal &= column[first] == column[second]
    return int(equal.sum()) >= _SHARED_PAIRS


def _with_equal_values(
    columns: Sequence[np.ndarray], n: int, numbers: np.ndarray, rng: np.random.Generator
) -> np.ndarray | None:
    """Choose groups of rows with equal values of all columns; None if no group is found."""
    chosen: list[np.ndarray] = []
    length = 0
    for row in rng.choice(len(numbers), size=min(_DRAWN_GROUPS, len(numbers)), replace=False):
        equal = columns[0] == columns[0][row]
        for column in columns[1:]:
            equal &= column == column[row]
        group = np.flatnonzero(equal)
        size = min(len(group) // 2 * 2, _GROUP_ROWS)
        if size:
            group = group[np.argsort(numbers[group], kind="stable")]
            start = rng.integers(len(group) - size + 1)
            chosen.append(group[start : start + size])
            length += size
        if length >= n:
            break
    return np.resize(np.concatenate(chosen), n) if chosen else None
