"""Source of minibatches for the arguments of a step method."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from pymc.model import Model
from pytensor.compile.sharedvalue import SharedVariable

from pymc_geodesic.arguments import check_containers, check_count, check_row_blocks
from pymc_geodesic.minibatches.block_format import BlockFormat
from pymc_geodesic.minibatches.block_rows import DenseRows, SparseRows
from pymc_geodesic.minibatches.resident_rows import (
    GroupedRows,
    IndependentRows,
    RandomRows,
    ShuffledRows,
)
from pymc_geodesic.minibatches.row_inputs import RowInput, drawn_rows, model_graphs
from pymc_geodesic.minibatches.source import AllRows, RowSource, check_numbers
from pymc_geodesic.minibatches.streamed_rows import StreamedBlocks, StreamedRows
from pymc_geodesic.sparse import SparseContainers, sparse_containers

MINIBATCH_ORDERS: dict[str, type[ShuffledRows | RandomRows]] = {
    "shuffled": ShuffledRows,
    "independent": IndependentRows,
    "random": RandomRows,
}

FEW_BLOCKS = 1000
"""Blocks of shuffled rows below which rows are drawn at random where their noise must be known."""


class MinibatchNoise(Enum):
    """What a sampler counts on of the noise of its minibatches."""

    ANY = "nothing"
    WHITE = "it is independent from one inner step to the next"
    SUBTRACTED = "it is independent, and all of it is subtracted from the injected noise"


def check_order(minibatch_order: str) -> None:
    """Refuse an order that is unknown.

    Raises
    ------
    ValueError
        The message names those there are.
    """
    if minibatch_order not in MINIBATCH_ORDERS:
        raise ValueError(
            f"minibatch_order={minibatch_order!r} is unknown; choose one of "
            f"{sorted(MINIBATCH_ORDERS)}"
        )


def order_for(asked: str, noise: MinibatchNoise, n_blocks: float) -> str:
    """Choose the order of the rows: independent minibatches for shuffled ones where noise is known.

    Over K blocks of rows shuffled once, the variance in a direction is off by about sqrt(2 / K) of
    itself. So where it is taken off and the blocks are few, the rows are drawn at random.

    Parameters
    ----------
    asked : str
        The order that the user asked for.
    noise : MinibatchNoise
    n_blocks : float
        K, rows of the data for each of a minibatch; infinite where that is not known.

    Examples
    --------
    >>> from pymc_geodesic.minibatches.from_arguments import MinibatchNoise, order_for
    >>> order_for("shuffled", MinibatchNoise.WHITE, 100.0)
    'independent'
    >>> order_for("shuffled", MinibatchNoise.SUBTRACTED, 100.0)
    'random'
    """
    if noise is MinibatchNoise.ANY or asked != "shuffled":
        return asked
    return (
        "random" if noise is MinibatchNoise.SUBTRACTED and n_blocks < FEW_BLOCKS else "independent"
    )


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
    minibatch: Sequence[str] | str | None = None
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
    def streamed(self) -> tuple[str, ...]:
        """Names of the data whose rows come from ``batches``."""
        if self.batches is None or self.minibatch is None:
            return ()
        return (self.minibatch,) if isinstance(self.minibatch, str) else tuple(self.minibatch)


def minibatch_source(
    model: Model,
    arguments: MinibatchArguments,
    *,
    noise: MinibatchNoise = MinibatchNoise.ANY,
    n_rows: int | None = None,
) -> RowSource:
    """Rows that the user of a step asks for by name, that the model itself draws, or all.

    Parameters
    ----------
    model : pymc.Model
    arguments : MinibatchArguments
    noise : MinibatchNoise
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
    model: Model, minibatch_order: str = "shuffled", *, noise: MinibatchNoise = MinibatchNoise.ANY
) -> RowSource:
    """Source of the rows that every `pymc.Minibatch` in a model stands for; all rows without one.

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
    values, columns = source.reorder_entries(sparse.rows.name, values, columns)
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
    noise: MinibatchNoise = MinibatchNoise.ANY,
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
    if drawn_rows(model_graphs(model)):
        raise ValueError(
            f"minibatch={arguments.minibatch!r} names containers of a model that draws rows "
            "itself, by pm.Minibatch: put all of its data into pm.Data containers and name these, "
            "or leave minibatch= out"
        )
    names = arguments.minibatch
    containers = {
        name: _container(model, name) for name in ((names,) if isinstance(names, str) else names)
    }
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
