"""The source of minibatches that the arguments of a step method ask for."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pymc.model import Model
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable

from pymc_geodesic.arguments import check_containers, check_count, check_row_blocks
from pymc_geodesic.failure_modes import see
from pymc_geodesic.minibatches.block_as_minibatch import StreamedRows
from pymc_geodesic.minibatches.block_format import BlockFormat
from pymc_geodesic.minibatches.block_rows import DenseRows, SparseRows
from pymc_geodesic.minibatches.grouped_rows import GroupedRows
from pymc_geodesic.minibatches.model_rows import ModelRows, selected_rows, with_containers
from pymc_geodesic.minibatches.orders import MINIBATCH_ORDERS, RowNoise, check_order, order_for
from pymc_geodesic.minibatches.random_rows import RandomRows
from pymc_geodesic.minibatches.resident_blocks import StreamedBlocks
from pymc_geodesic.minibatches.row_inputs import RowInput, drawn_rows, graphs_of
from pymc_geodesic.minibatches.shuffled_rows import ShuffledRows
from pymc_geodesic.minibatches.source import AllRows, RowSource, check_numbers
from pymc_geodesic.sparse import SparseContainers, sparse_containers

type Containers = Mapping[str, SharedVariable | SparseContainers]
"""Data that ``minibatch=`` names, by their names."""


@dataclass(frozen=True)
class MinibatchArguments:
    """Arguments of a step method that select its minibatches.

    A step keeps them because it makes its rows anew where it is unpickled.

    Parameters
    ----------
    batch_size, minibatch, batches, total_size, minibatch_order, draws_per_block
        See `pymc_geodesic.SGGMC`.

    Raises
    ------
    ValueError
        For an argument that is invalid whatever the model.
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
        check_containers(self.minibatch)
        check_row_blocks(self.batches)

    @property
    def names(self) -> tuple[str, ...]:
        """What ``minibatch`` names; nothing if it is left out."""
        given = self.minibatch
        if given is None:
            return ()
        several = [given] if isinstance(given, str | Variable) else given
        return tuple(each if isinstance(each, str) else str(each.name) for each in several)

    @property
    def streamed(self) -> tuple[str, ...]:
        """Names of the data whose rows come from ``batches``."""
        return () if self.batches is None else self.names


def rows_as_containers(
    model: Model, arguments: MinibatchArguments
) -> tuple[Model, MinibatchArguments, ModelRows | None]:
    """Find the rows that arguments select in a model, and make data containers of them.

    Parameters
    ----------
    model : pymc.Model
    arguments : MinibatchArguments

    Returns
    -------
    model : pymc.Model
        With the rows in data containers; the same model if they are already.
    arguments : MinibatchArguments
        With the names of these containers.
    rows : ModelRows or None
        What was found; None where the arguments name containers or select no rows.

    Raises
    ------
    ValueError
        See `selected_rows`.
    """
    rows = selected_rows(model, arguments.names, arguments.batch_size)
    if rows is None:
        return model, arguments, None
    return with_containers(model, rows), replace(arguments, minibatch=tuple(rows.data)), rows


def minibatch_source(
    model: Model,
    arguments: MinibatchArguments,
    *,
    noise: RowNoise = RowNoise.ANY,
    n_rows: int | None = None,
) -> RowSource:
    """Rows that the user of a step asks for by name, that the model itself draws, or all.

    Parameters
    ----------
    model : pymc.Model
    arguments : MinibatchArguments
    noise : RowNoise
        What the step counts on of the noise of minibatches.
    n_rows : int, optional
        Rows of a minibatch, where the arguments name data in memory and no number.

    Raises
    ------
    ValueError
        See `named_row_source` and `row_source`.
    """
    source = named_row_source(model, arguments, noise=noise, n_rows=n_rows)
    if source is not None:
        return source
    return drawn_row_source(model, arguments.minibatch_order, noise=noise)


def _check_rows(arrays: Mapping[str, np.ndarray], batch_size: int) -> None:
    scalars = [name for name, array in arrays.items() if array.ndim == 0]
    if scalars:
        raise ValueError(f"minibatch= names {scalars[0]!r}, a scalar, which has no rows")
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"minibatch= containers have different numbers of rows: {lengths}")
    n_rows = next(iter(lengths.values()))
    if not 1 <= batch_size <= n_rows:
        raise ValueError(
            f"batch_size={batch_size} does not fit the {n_rows} rows of {next(iter(lengths))!r}; "
            f"choose 1 to {n_rows}, or leave batch_size out to use all rows"
        )
    for name, array in arrays.items():
        check_numbers(name, array)


def row_source(
    arrays: Mapping[str, np.ndarray], batch_size: int, minibatch_order: str
) -> ShuffledRows | RandomRows:
    """Source of minibatches of rows that are all in memory.

    Raises
    ------
    ValueError
        For an unknown order, a batch that does not fit the data, or data that hold NaN or
        infinity.
    """
    check_order(minibatch_order)
    _check_rows(arrays, batch_size)
    return MINIBATCH_ORDERS[minibatch_order](arrays, batch_size)


def drawn_row_source(
    model: Model, minibatch_order: str = "shuffled", *, noise: RowNoise = RowNoise.ANY
) -> RowSource:
    """Source of the rows that every `pymc.Minibatch` in a model stands for; all rows without one.

    Raises
    ------
    ValueError
        See `row_source`.
    """
    drawn = drawn_rows(graphs_of(model))
    if not drawn:
        return AllRows()
    groups: dict[int, list[RowInput]] = {}
    for row in dict.fromkeys(drawn.values()):
        groups.setdefault(row.group, []).append(row)
    n_blocks = min(len(row.data) / row.block.type.shape[0] for row in drawn.values())
    order = order_for(minibatch_order, noise, n_blocks)
    sources: list[RowSource] = []
    for members in groups.values():
        arrays = {row.name: row.data for row in members}
        source = row_source(arrays, members[0].block.type.shape[0], order)
        source.watch({row.name: row.container for row in members if row.container is not None})
        sources.append(source)
    joined = sources[0] if len(sources) == 1 else GroupedRows(sources)
    joined.drawn = drawn
    return joined


def _streamed_source(
    arguments: MinibatchArguments, containers: Containers, order: str
) -> RowSource:
    batches, batch_size = arguments.batches, arguments.batch_size
    assert batches is not None
    total = arguments.total_size
    total = getattr(batches, "total_size", None) if total is None else total
    if total is None:
        raise ValueError("batches= does not say how many rows there are; pass total_size=")
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
                "draws_per_block= needs batch_size=: without it each block of batches= is one "
                "minibatch"
            )
        return StreamedRows(batches, blocks, int(total), getattr(batches, "batch_size", None))
    return StreamedBlocks(
        batches,
        blocks,
        int(total),
        batch_size=int(batch_size),
        order=order,
        draws_per_block=arguments.draws_per_block,
    )


def _resident_source(
    arguments: MinibatchArguments, containers: Containers, batch_size: int, order: str
) -> RowSource:
    sparse = [each for each in containers.values() if isinstance(each, SparseContainers)]
    dense = {n: each for n, each in containers.items() if not isinstance(each, SparseContainers)}
    with_rows = [
        each.rows if isinstance(each, SparseContainers) else each for each in containers.values()
    ]
    arrays = {data.name: np.asarray(data.get_value(borrow=True)) for data in with_rows}
    source = row_source(arrays, batch_size, order)
    total_size = arguments.total_size
    if total_size is not None and total_size < source.n_rows:
        raise ValueError(
            f"total_size={total_size} is less than the {source.n_rows} rows of "
            f"{next(iter(containers))!r}: leave it out, or give the number of all rows there are"
        )
    for parts in sparse:
        _make_contiguous(source, parts)
    source.watch(dense | {parts.values.name: parts.values for parts in sparse})
    return source


def _make_contiguous(source: RowSource, sparse: SparseContainers) -> None:
    """Let the rows of a source point into numbers of their own, in the order of the rows."""
    values = sparse.values.get_value(borrow=True)
    columns = sparse.columns.get_value(borrow=True)
    values, columns = source.in_order_of_rows(sparse.rows.name, values, columns)
    source.whole[sparse.values.name] = values
    source.whole[sparse.columns.name] = columns


def _container(model: Model, name: str) -> SharedVariable | SparseContainers:
    """Find the data that ``minibatch=`` names."""
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
                f'. Write {array} = pm.Data("{name}", {array}) at the beginning of the model, and '
                "use this container in it"
            )
        raise ValueError(
            f"minibatch= names {name!r}, which is no pm.Data container of the model; "
            f"the containers are {known}{remedy}"
        )
    return container


def _blocks_of_first(containers: Containers, batch_size: int) -> float:
    """Blocks of the first container, infinite if it has no row for each of the data."""
    first = next(iter(containers.values()), None)
    if not isinstance(first, SharedVariable):
        return math.inf
    value = first.get_value(borrow=True)
    return len(value) / batch_size if value.ndim else math.inf


def _refuse_without_containers(model: Model, arguments: MinibatchArguments) -> None:
    if arguments.batch_size is not None and drawn_rows(graphs_of(model)):
        message = (
            "batch_size= would divide the rows of a model that draws them itself, by pm.Minibatch: "
            "its batch_size is that of pm.Minibatch. Leave batch_size= out, or write the model "
            "without pm.Minibatch"
        )
        raise ValueError(see(message, "minibatch"))
    containers = [data.name for data in model.data_vars]
    for argument in ("batch_size", "batches", "total_size"):
        if getattr(arguments, argument) is not None:
            raise ValueError(
                f"{argument}= needs minibatch=[...], the names of the data containers whose "
                f"rows it divides; this model has {containers}"
            )


def _check_draws_per_block(arguments: MinibatchArguments) -> None:
    draws = arguments.draws_per_block
    if draws is None:
        return
    if not (int(draws) == draws and draws >= 1):
        raise ValueError(f"draws_per_block must be a positive integer, got {draws}")
    if arguments.batches is None:
        raise ValueError("draws_per_block= is about the blocks of batches=, which is missing")


def named_row_source(
    model: Model,
    arguments: MinibatchArguments,
    *,
    noise: RowNoise = RowNoise.ANY,
    n_rows: int | None = None,
) -> RowSource | None:
    """Row source of the minibatch arguments of a step method; None where there are none.

    Takes the arguments of `minibatch_source`.

    Raises
    ------
    ValueError
        For an unknown container, missing or contradictory arguments, or a batch that does not
        fit the data.
    """
    _check_draws_per_block(arguments)
    check_order(arguments.minibatch_order)
    if arguments.minibatch is None:
        _refuse_without_containers(model, arguments)
        return None
    if drawn_rows(graphs_of(model)):
        raise ValueError(
            f"minibatch={arguments.minibatch!r} names containers of a model that draws rows "
            "itself, by pm.Minibatch: put all of its data into pm.Data containers and name these, "
            "or leave minibatch= out"
        )
    containers = {name: _container(model, name) for name in arguments.names}
    batch_size = arguments.batch_size
    n_blocks = _blocks_of_first(containers, batch_size) if batch_size else math.inf
    order = order_for(arguments.minibatch_order, noise, n_blocks)
    if arguments.batches is not None:
        return _streamed_source(arguments, containers, order)
    if batch_size is None:
        batch_size = n_rows
    if batch_size is None:
        raise ValueError("minibatch= needs batch_size=, the number of rows of a minibatch")
    return _resident_source(arguments, containers, int(batch_size), order)
