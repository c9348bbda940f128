"""Minibatch arguments of a step method, and the source of minibatches that they select."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np
from pymc.model import Model
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable

from pymc_geodesic.arguments import (
    check_batch_size,
    check_choice,
    check_containers,
    check_count,
    check_row_blocks,
)
from pymc_geodesic.datasets import TableBlocks
from pymc_geodesic.failure_modes import see
from pymc_geodesic.minibatches.block_format import BlockFormat
from pymc_geodesic.minibatches.block_rows import DenseRows, SparseRows
from pymc_geodesic.minibatches.model_rows import (
    ModelRows,
    censoring_bounds,
    selected_rows,
    with_containers,
)
from pymc_geodesic.minibatches.resident_rows import (
    GroupedRows,
    IndependentRows,
    RandomRows,
    ShuffledRows,
)
from pymc_geodesic.minibatches.row_inputs import (
    RowInput,
    drawn_rows,
    evaluate_data,
    model_graphs,
)
from pymc_geodesic.minibatches.source import AllRows, RowSource, check_numbers
from pymc_geodesic.minibatches.streamed_rows import StreamedBlocks, StreamedRows
from pymc_geodesic.sparse import SparseContainers, sparse_containers

# --- arguments ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class MinibatchArguments:
    """Arguments of a step method that select its minibatches.

    A step stores them to create its source again when it is unpickled.

    Parameters
    ----------
    batch_size, minibatch, batches, total_size, minibatch_order, draws_per_block
        See `pymc_geodesic.SGGMC`.

    Raises
    ------
    ValueError
        For an argument that is invalid for any model.
    """

    batch_size: int | None = None
    minibatch: Sequence[str | Variable] | str | Variable | None = None
    batches: Iterable[Any] | None = None
    total_size: int | None = None
    minibatch_order: str = "shuffled"
    draws_per_block: int | None = None

    def __post_init__(self) -> None:
        """Check each argument."""
        check_count("batch_size", self.batch_size)
        check_count("total_size", self.total_size)
        check_count("draws_per_block", self.draws_per_block)
        check_choice("minibatch_order", self.minibatch_order, MINIBATCH_ORDERS)
        check_containers(self.minibatch)
        check_row_blocks(self.batches)

    @property
    def names(self) -> tuple[str, ...]:
        """Names in ``minibatch``; empty if it is None."""
        given = self.minibatch
        if given is None:
            return ()
        several = [given] if isinstance(given, str | Variable) else given
        return tuple(each if isinstance(each, str) else str(each.name) for each in several)

    @property
    def n_rows(self) -> int | None:
        """Number of rows of the data, if an argument has it."""
        return self.total_size or getattr(self.batches, "total_size", None)

    @property
    def streamed(self) -> tuple[str, ...]:
        """Names of the data whose rows come from ``batches=``."""
        return () if self.batches is None else self.names


def rows_as_containers(
    model: Model, arguments: MinibatchArguments, *, has_local: bool
) -> tuple[Model, MinibatchArguments, ModelRows | None]:
    """Find the rows that arguments select in a model, and convert them to data containers.

    Parameters
    ----------
    model : pymc.Model
    arguments : MinibatchArguments
    has_local : bool
        Whether the step has variables with a value for each row.

    Returns
    -------
    model : pymc.Model
        Model with the rows in data containers; the same model if they are already.
    arguments : MinibatchArguments
        Arguments with the names of these containers.
    rows : ModelRows or None
        Rows that were found; None if the arguments name containers or select no rows.

    Raises
    ------
    ValueError
        See `selected_rows`; also for a batch size that exceeds the number of rows, and for named
        data of a model with `pymc.Minibatch`.
    """
    if isinstance(arguments.batches, TableBlocks):
        return _rows_of_table(model, arguments, arguments.batches)
    if arguments.batches is not None and not arguments.names:
        return model, arguments, None  # the order of the yielded arrays is unknown
    if arguments.names:
        _check_not_drawn(model, arguments)
    rows = selected_rows(model, arguments.names, arguments.batch_size, has_local=has_local)
    if rows is None:
        return model, arguments, None
    if arguments.batch_size is not None:
        name, first = next(iter(rows.data.items()))
        shape = np.shape(evaluate_data(first))
        check_batch_size(arguments.batch_size, shape[0], f"rows of {name!r}", shape=shape)
    return with_containers(model, rows), replace(arguments, minibatch=tuple(rows.data)), rows


def _rows_of_table(
    model: Model, arguments: MinibatchArguments, table: TableBlocks
) -> tuple[Model, MinibatchArguments, ModelRows | None]:
    """Derive the rows of a model from the columns of a table that has more rows."""
    if drawn_rows(model_graphs(model)):
        message = (
            "table_blocks needs a model of all rows of the sample, but this model draws rows with "
            "pm.Minibatch. Write it without pm.Minibatch"
        )
        raise ValueError(see(message, "minibatch"))
    rows = selected_rows(model, arguments.names, table.block_size)
    if rows is None:
        containers = _containers_of_table(model, arguments.names)
    else:
        containers = dict(rows.data)
    sparse = [name for name, each in containers.items() if isinstance(each, SparseContainers)]
    if sparse:
        raise ValueError(
            f"table_blocks yields dense arrays, but {sparse[0]!r} is a sparse matrix. Pass an "
            "iterable that yields sparse matrices as batches="
        )
    batches = table.for_arrays({name: evaluate_data(each) for name, each in containers.items()})
    arguments = replace(arguments, minibatch=tuple(containers), batches=batches)
    if rows is None:
        return model, arguments, None
    found = replace(rows, n_rows=batches.total_size, origins=batches.origins)
    return with_containers(model, rows), arguments, found


def _containers_of_table(model: Model, names: Sequence[str]) -> Containers:
    """Find data containers by their names."""
    known = [data.name for data in model.data_vars]
    for name in names:
        if name not in known and sparse_containers(model, name) is None:
            raise ValueError(
                f"minibatch= names {name!r}, which is neither an observed variable, a dimension of "
                f"one, nor one of the pm.Data containers {known}. Omit minibatch=, so that the "
                "arrays with rows are found; name columns of the table in columns= of table_blocks"
            )
    return {name: _container(model, name) for name in names}


# --- order --------------------------------------------------------------------------------------

MINIBATCH_ORDERS: dict[str, type[ShuffledRows | RandomRows]] = {
    "shuffled": ShuffledRows,
    "independent": IndependentRows,
    "random": RandomRows,
}

MIN_MINIBATCHES = 1000
"""Minimum number of minibatches of an epoch for noise to be subtracted without replacement; with
fewer minibatches rows are drawn with replacement."""


class MinibatchNoise(Enum):
    """Assumption of a sampler about the noise of its minibatches."""

    ANY = "none"
    WHITE = "independent between inner steps"
    SUBTRACTED = "independent between inner steps, and subtracted from the injected noise"


def order_for(requested: str, noise: MinibatchNoise, n_minibatches: float) -> str:
    """Choose a minibatch order with the assumed noise.

    With K minibatches of rows that are shuffled once, the relative error of the variance in a
    direction is about sqrt(2 / K). Therefore rows are drawn with replacement if the noise is
    subtracted and K is small.

    Parameters
    ----------
    requested : str
        The argument ``minibatch_order=``.
    noise : MinibatchNoise
    n_minibatches : float
        K, N divided by the batch size, for blocks of rows as well: minibatches come from all of
        them in turn.

    Examples
    --------
    >>> from pymc_geodesic.minibatches.from_arguments import MinibatchNoise, order_for
    >>> order_for("shuffled", MinibatchNoise.WHITE, 100.0)
    'independent'
    >>> order_for("shuffled", MinibatchNoise.SUBTRACTED, 100.0)
    'random'
    """
    if noise is MinibatchNoise.ANY or requested != "shuffled":
        return requested
    return (
        "random"
        if noise is MinibatchNoise.SUBTRACTED and n_minibatches < MIN_MINIBATCHES
        else "independent"
    )


# --- sources ------------------------------------------------------------------------------------

type Containers = Mapping[str, SharedVariable | SparseContainers]
"""Data named in ``minibatch=``, by name."""


def minibatch_source(
    model: Model,
    arguments: MinibatchArguments,
    *,
    noise: MinibatchNoise = MinibatchNoise.ANY,
    default_batch_size: int | None = None,
) -> RowSource:
    """Create the source of named rows, of rows drawn by `pymc.Minibatch`, or of all rows.

    Parameters
    ----------
    model : pymc.Model
    arguments : MinibatchArguments
    noise : MinibatchNoise
        Assumption of the step about the noise of minibatches.
    default_batch_size : int, optional
        Batch size of named data in memory, if ``batch_size=`` is omitted.

    Raises
    ------
    ValueError
        See `named_row_source` and `row_source`; also for an order without minibatches.
    """
    source = named_row_source(model, arguments, noise=noise, default_batch_size=default_batch_size)
    if source is not None:
        return source
    source = drawn_row_source(model, arguments.minibatch_order, noise=noise)
    if source.has_all_rows and arguments.minibatch_order != "shuffled":
        raise ValueError(
            "minibatch_order= needs minibatches. Set batch_size=, or omit minibatch_order="
        )
    return source


def _check_rows(arrays: Mapping[str, np.ndarray], batch_size: int, bounds: Collection[str]) -> None:
    scalars = [name for name, array in arrays.items() if array.ndim == 0]
    if scalars:
        raise ValueError(
            f"minibatch= names {scalars[0]!r}, a scalar, which has no rows. Remove it from "
            "minibatch="
        )
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"minibatch= containers have different numbers of rows: {lengths}")
    first = next(iter(lengths))
    shape = arrays[first].shape
    check_batch_size(batch_size, shape[0], f"rows of {first!r}", shape=shape)
    for name, array in arrays.items():
        check_numbers(name, array, bounds)


def row_source(
    arrays: Mapping[str, np.ndarray],
    batch_size: int,
    minibatch_order: str,
    bounds: Collection[str] = (),
) -> ShuffledRows | RandomRows:
    """Create a source of rows in memory.

    Parameters
    ----------
    arrays : mapping of str to ndarray
    batch_size : int
    minibatch_order : str
    bounds : collection of str
        See `check_numbers`.

    Raises
    ------
    ValueError
        For a batch size that exceeds the data, or data with NaN or infinity.
    """
    _check_rows(arrays, batch_size, bounds)
    return MINIBATCH_ORDERS[minibatch_order](arrays, batch_size)


def drawn_row_source(
    model: Model, minibatch_order: str = "shuffled", *, noise: MinibatchNoise = MinibatchNoise.ANY
) -> RowSource:
    """Create a source of the rows of all `pymc.Minibatch` of a model; without any, of all rows.

    Raises
    ------
    ValueError
        See `row_source`.
    """
    drawn = drawn_rows(model_graphs(model))
    if not drawn:
        return AllRows()
    groups: dict[int, list[RowInput]] = {}
    for row in dict.fromkeys(drawn.values()):
        groups.setdefault(row.group, []).append(row)
    n_minibatches = min(len(row.data) / row.block.type.shape[0] for row in drawn.values())
    order = order_for(minibatch_order, noise, n_minibatches)
    sources: list[RowSource] = []
    for members in groups.values():
        arrays = {row.name: row.data for row in members}
        source = row_source(arrays, members[0].block.type.shape[0], order)
        source.track_containers(
            {row.name: row.container for row in members if row.container is not None}
        )
        sources.append(source)
    joined = sources[0] if len(sources) == 1 else GroupedRows(sources)
    joined.drawn = drawn
    return joined


def check_streamed_order(arguments: MinibatchArguments) -> None:
    """Raise ValueError for an order of minibatches that are the blocks of an iterable."""
    if arguments.minibatch_order != "shuffled":
        raise ValueError(
            "minibatch_order= has no effect with batches= without batch_size=, which shuffles the "
            "rows of about 16 minibatches together. Omit it, or set batch_size="
        )


def _streamed_source(
    arguments: MinibatchArguments, containers: Containers, noise: MinibatchNoise
) -> RowSource:
    batches, batch_size = arguments.batches, arguments.batch_size
    assert batches is not None
    total = arguments.n_rows
    if total is None:
        raise ValueError("batches= has no total_size. Pass total_size=, the number of all rows")
    blocks = BlockFormat(
        [
            SparseRows(name, container)
            if isinstance(container, SparseContainers)
            else DenseRows(name, container.type.dtype, container.get_value(borrow=True).shape[1:])
            for name, container in containers.items()
        ]
    )
    if batch_size is None:
        if arguments.draws_per_block is not None:
            raise ValueError(
                "draws_per_block= needs batch_size=, since otherwise each block of batches= is one "
                "minibatch. Set batch_size= or omit draws_per_block="
            )
        check_streamed_order(arguments)
        return StreamedRows(batches, blocks, int(total), getattr(batches, "batch_size", None))
    return StreamedBlocks(
        batches,
        blocks,
        int(total),
        batch_size=int(batch_size),
        order=order_for(arguments.minibatch_order, noise, total / batch_size),
        draws_per_block=arguments.draws_per_block,
    )


def _resident_source(
    model: Model,
    arguments: MinibatchArguments,
    containers: Containers,
    batch_size: int,
    noise: MinibatchNoise,
) -> RowSource:
    sparse = [each for each in containers.values() if isinstance(each, SparseContainers)]
    dense = {n: each for n, each in containers.items() if not isinstance(each, SparseContainers)}
    with_rows = [
        each.rows if isinstance(each, SparseContainers) else each for each in containers.values()
    ]
    arrays = {data.name: np.asarray(data.get_value(borrow=True)) for data in with_rows}
    n_rows = max(array.shape[0] if array.ndim else 0 for array in arrays.values())
    order = order_for(arguments.minibatch_order, noise, n_rows / batch_size)
    bounds = censoring_bounds(model)
    source = row_source(arrays, batch_size, order, bounds)
    total_size = arguments.total_size
    if total_size is not None and total_size < source.n_rows:
        raise ValueError(
            f"total_size={total_size} is less than the {source.n_rows} rows of "
            f"{next(iter(containers))!r}. Omit it, or pass the number of all rows"
        )
    for parts in sparse:
        _make_contiguous(source, parts)
    values = {parts.values.name: parts.values for parts in sparse}
    source.track_containers(dense | values, bounds)
    return source


def _make_contiguous(source: RowSource, sparse: SparseContainers) -> None:
    """Sort the entries of a sparse matrix in the order of the rows of a source."""
    values = sparse.values.get_value(borrow=True)
    columns = sparse.columns.get_value(borrow=True)
    values, columns = source.reorder_entries(sparse.rows.name, values, columns)
    source.whole[sparse.values.name] = values
    source.whole[sparse.columns.name] = columns


def _container(model: Model, name: str) -> SharedVariable | SparseContainers:
    """Find the data container, or the containers of the sparse matrix, with a name."""
    sparse = sparse_containers(model, name)
    if sparse is not None:
        return sparse
    container = model.named_vars.get(name)
    if not isinstance(container, SharedVariable):
        known = [data.name for data in model.data_vars]
        remedy = ""
        if container is None and not difflib.get_close_matches(name, known):
            array = name if name.isidentifier() else "array"
            remedy = (
                f'. Add {array} = pm.Data("{name}", {array}) at the beginning of the model, and '
                "use this container in the model"
            )
        raise ValueError(
            f"minibatch= names {name!r}, which is not a pm.Data container of the model. "
            f"The containers are {known}{remedy}"
        )
    return container


def _check_not_drawn(model: Model, arguments: MinibatchArguments) -> None:
    """Raise ValueError for named data of a model with `pymc.Minibatch`."""
    if drawn_rows(model_graphs(model)):
        raise ValueError(
            f"minibatch={arguments.minibatch!r} names data of a model with pm.Minibatch. Use "
            "pm.Data containers for all of its data and name them, or omit minibatch="
        )


def _check_no_other_arguments(model: Model, arguments: MinibatchArguments) -> None:
    """Raise ValueError for arguments of minibatches if ``minibatch=`` names no data."""
    if drawn_rows(model_graphs(model)):
        for argument, quantity in (("batch_size", "batch size"), ("total_size", "number of rows")):
            if getattr(arguments, argument) is not None:
                message = (
                    f"{argument}= has no effect on a model with pm.Minibatch, which sets the "
                    f"{quantity}. Omit {argument}=, or write the model without pm.Minibatch"
                )
                raise ValueError(see(message, "minibatch"))
    containers = [data.name for data in model.data_vars]
    if arguments.batches is not None:
        raise ValueError(
            "batches= needs minibatch=[...], the names of the data containers with a row per "
            f"observation. This model has the containers {containers}. For Parquet files and Dask "
            "data frames, use datasets.table_blocks(source, like=sample), which finds the rows of "
            "a model"
        )
    if arguments.batch_size is not None:
        raise ValueError(
            "batch_size= needs minibatch=[...], the names of the data containers with a row per "
            f"observation. This model has the containers {containers}"
        )
    if arguments.total_size is not None:
        raise ValueError("total_size= needs minibatches. Set batch_size=, or omit total_size=")


def named_row_source(
    model: Model,
    arguments: MinibatchArguments,
    *,
    noise: MinibatchNoise = MinibatchNoise.ANY,
    default_batch_size: int | None = None,
) -> RowSource | None:
    """Create the source of rows of the data named in the arguments; None if none are named.

    See `minibatch_source` for the parameters.

    Raises
    ------
    ValueError
        For an unknown container, missing or contradictory arguments, or a batch size that exceeds
        the data.
    """
    if arguments.draws_per_block is not None and arguments.batches is None:
        raise ValueError(
            "draws_per_block= needs batches=, an iterable of blocks. Omit draws_per_block="
        )
    if arguments.minibatch is None:
        _check_no_other_arguments(model, arguments)
        return None
    _check_not_drawn(model, arguments)
    containers = {name: _container(model, name) for name in arguments.names}
    if arguments.batches is not None:
        return _streamed_source(arguments, containers, noise)
    batch_size = arguments.batch_size or default_batch_size
    if batch_size is None:
        raise ValueError(
            "minibatch= needs batch_size=, the number of rows of a minibatch. Set batch_size= or "
            "omit minibatch="
        )
    return _resident_source(model, arguments, containers, int(batch_size), noise)
