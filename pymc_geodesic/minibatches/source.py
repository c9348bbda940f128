"""Where the rows of the next minibatch lie.

A source keeps arrays whose memory the compiled gradient reads, and hands out, per draw, one
first row for each inner step. The data themselves never pass through Python.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from operator import is_
from types import MappingProxyType
from typing import Any

import numpy as np
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable

from pymc_geodesic.failure_modes import see
from pymc_geodesic.minibatches.related_rows import related_rows
from pymc_geodesic.minibatches.row_indices import RowIndex
from pymc_geodesic.minibatches.row_inputs import (
    DrawnRows,
    SeenRows,
    evaluated,
    values_behind,
)


def check_numbers(name: str, array: np.ndarray) -> None:
    """Refuse data that hold NaN, infinity, or numbers whose squares are infinite.

    Raises
    ------
    ValueError
        The message names the container.
    """
    if undefined := undefined_numbers(array):
        what, remedy = undefined
        raise ValueError(see(f"data container {name!r} holds {what}; {remedy}", "missing-values"))


def undefined_numbers(array: np.ndarray) -> tuple[str, str] | None:
    """Say which numbers of an array are none, and what to do about them.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.minibatches.source import undefined_numbers
    >>> undefined_numbers(np.array([1.0, np.nan]))
    ('NaN', 'drop or impute those rows first')
    >>> undefined_numbers(np.array([1.0, 2.0])) is None
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
            "drop those rows first, or give a large finite number where it is a bound (1e9)",
        )
    return f"{largest:.2g}, whose square overflows", "rescale it, or drop those rows first"


class RowSource(ABC):
    """Source of minibatches.

    Attributes
    ----------
    arrays : dict of str to ndarray
        Resident rows, C-contiguous; `next_starts` counts from their first row.
    batch_size : int
        Rows of a minibatch.
    n_rows : int
        N, all rows of the data.
    with_replacement : bool
        Whether a minibatch may hold a row twice.
    moves : bool
        Whether `next_starts` may put other arrays in the place of ``arrays``.
    is_everything : bool
        Whether there are no minibatches: every gradient sees all rows.
    walks_epochs : bool
        Whether every row comes once before any comes again, so that noise adds up to zero.
    stays_in_blocks : bool
        Whether minibatches come from some of the rows for a while, whose noise stays as long.
    passes_by : bool
        Whether rows are read as they come, and looked at meanwhile, instead of being in memory.
    whole : dict of str to ndarray
        Arrays that the rows point into (the numbers of a sparse matrix), which stand for the
        data containers of these names.
    drawn : mapping of (generator, int) to RowInput
        Where the rows are those that `pymc.Minibatch` draws in a model: which they are.
    """

    arrays: dict[str, np.ndarray]
    batch_size: int
    n_rows: int
    with_replacement: bool = False
    moves: bool = True
    is_everything: bool = False
    walks_epochs: bool = False
    stays_in_blocks: bool = False
    passes_by: bool = False
    drawn: DrawnRows = MappingProxyType({})
    _containers: Mapping[str, Variable] = MappingProxyType({})

    def __init__(self) -> None:
        self.whole: dict[str, np.ndarray] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Data containers whose rows these are; none where `pymc.Minibatch` draws them."""
        return () if self.drawn else tuple(self.arrays)

    def seen(self, n_rows: int | None = None) -> SeenRows:
        """Rows that a log-density sees at once: those of a minibatch, or another number of them."""
        if self.drawn:
            return SeenRows(drawn=self.drawn, n_rows=n_rows, whole=tuple(self.whole))
        size = self.batch_size if self.arrays and n_rows is None else n_rows
        return SeenRows(self.arrays, n_rows=size, whole=tuple(self.whole))

    @property
    def epoch(self) -> int | None:
        """Minibatches in which every row comes once, in an order that is random in each epoch.

        None where rows come in another way.
        """
        return None

    def watch(self, containers: Mapping[str, Variable]) -> None:
        """Remember which values of data containers the rows were copied or computed from."""
        self._containers = dict(containers)
        self._copied: dict[str, list[np.ndarray]] = {
            name: values_behind(each) for name, each in containers.items()
        }

    def check_indices(self, indices: Sequence[RowIndex]) -> None:
        """Look from now on whether rows that are read point beyond an array.

        Parameters
        ----------
        indices : list of RowIndex
            None for rows that are in memory, which are looked at where they are.
        """
        if indices:
            raise NotImplementedError(f"{type(self).__name__} does not look at indices")

    def refresh(self) -> None:
        """Copy the rows again of containers that `pymc.set_data` has given other values.

        Raises
        ------
        ValueError
            If their shape is another, they hold NaN or infinity, or a sparse matrix has changed.
        """
        for name, container in self._containers.items():
            behind = values_behind(container)
            if all(map(is_, behind, self._copied[name])):
                continue
            if name not in self.arrays:
                message = f"the sparse data {name!r} have changed; make the step again"
                raise ValueError(see(message, "changed-data"))
            value = evaluated(container)
            expected = (self.n_rows, *self.arrays[name].shape[1:])
            if value.shape != expected:
                message = (
                    f"data container {name!r} had shape {expected} when this step was made and "
                    f"has {value.shape} now; make the step again"
                )
                raise ValueError(see(message, "changed-data"))
            check_numbers(name, value)
            self.replace_rows(name, value)
            self._copied[name] = behind

    def replace_rows(self, name: str, rows: np.ndarray) -> None:
        """Replace the resident rows of a container that `pymc.set_data` has changed.

        Parameters
        ----------
        name : str
        rows : ndarray, shape (n_rows, ...)
            In the order of the container.
        """
        raise NotImplementedError(f"{type(self).__name__} copies no rows of data containers")

    def in_order_of_rows(
        self, name: str, values: np.ndarray, columns: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Bring the entries of a sparse matrix in the order of the rows that point into them.

        Parameters
        ----------
        name : str
            Which of ``arrays`` holds where the entries of each row begin and end.
        values, columns : ndarray, shape (n_entries,)
            They are as they were where rows have no order.
        """
        return values, columns

    def whole_array(self, holder: np.ndarray | SharedVariable) -> np.ndarray:
        """Array that every gradient sees all of: a constant, or the value of a data container."""
        if isinstance(holder, np.ndarray):
            return holder
        if holder.name in self.whole:
            return self.whole[holder.name]
        return np.asarray(holder.get_value(borrow=True))

    def example_rows(self, n: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Choose some rows of the data, always the same ones, each perhaps more than once.

        Returns
        -------
        arrays, whole : dict of str to ndarray
            ``n`` rows of each of ``arrays``, and what they point into.
        """
        arrays, whole, _ = self._examples()
        rows = np.random.default_rng(0).integers(len(next(iter(arrays.values()))), size=n)
        return {name: array[rows] for name, array in arrays.items()}, whole

    def related_examples(self, n: int) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
        """Choose rows that depend on each other in some models; see `related_rows`.

        Yields
        ------
        description : str
            What the rows have in common.
        arrays : dict of str to ndarray
            ``n`` rows of each of ``arrays``, which point into the same as those of `example_rows`.
        """
        arrays, _, numbers = self._examples()
        for description, rows in related_rows(arrays, n, numbers):
            yield description, {name: array[rows] for name, array in arrays.items()}

    def sample_rows(self, n: int) -> tuple[dict[str, np.ndarray], int]:
        """Choose rows that stand for all, always the same ones; return also how many there are."""
        return self.example_rows(n)[0], n

    def all_rows(self) -> Iterator[tuple[dict[str, np.ndarray], int]] | None:
        """Go once through all rows, part by part; None where that is not possible.

        Yields
        ------
        arrays : dict of str to ndarray
            C-contiguous rows by container, valid until the next part.
        n_rows : int
            How many of them count.
        """
        return None

    def _examples(
        self,
    ) -> tuple[Mapping[str, np.ndarray], dict[str, np.ndarray], np.ndarray | None]:
        """Rows to choose examples from, what they point into, and their original row numbers.

        The row numbers are None where the rows are in their original order.
        """
        return self.arrays, self.whole, None

    @abstractmethod
    def reset(self, seed: int) -> None:
        """Start a chain."""

    @abstractmethod
    def next_starts(self, n: int) -> np.ndarray:
        """First rows of the next ``n`` minibatches, shape ``(n,)``."""

    @abstractmethod
    def row_indices(self, start: int) -> np.ndarray:
        """Rows of the original data in the minibatch that starts at ``start``."""

    @property
    @abstractmethod
    def state(self) -> dict[str, Any]:
        """All that decides the minibatches to come."""

    @state.setter
    @abstractmethod
    def state(self, state: dict[str, Any]) -> None: ...


class PassingRows(RowSource):
    """Rows that only pass by, of which no one knows the number."""

    passes_by = True

    def row_indices(self, start: int) -> np.ndarray:
        """Not known.

        Raises
        ------
        ValueError
            Always: rows that only pass by have no place to keep the value of a local variable.
        """
        raise ValueError("local= needs rows that can be visited again: not available with batches=")


class AllRows(RowSource):
    """No minibatches: every gradient sees all the data."""

    moves = False
    is_everything = True

    def __init__(self, arrays: Mapping[str, np.ndarray] | None = None) -> None:
        super().__init__()
        self.arrays = {k: np.ascontiguousarray(v) for k, v in (arrays or {}).items()}
        lengths = {len(a) for a in self.arrays.values()}
        self.n_rows = self.batch_size = lengths.pop() if lengths else 1
        self._starts = np.zeros(1, dtype=np.int64)

    def reset(self, seed: int) -> None:
        """Nothing to do."""

    def next_starts(self, n: int) -> np.ndarray:
        """Zeros."""
        if self._starts.size != n:
            self._starts = np.zeros(n, dtype=np.int64)
        return self._starts

    def row_indices(self, start: int) -> np.ndarray:
        """All rows."""
        return np.arange(self.n_rows)

    @property
    def state(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        pass
