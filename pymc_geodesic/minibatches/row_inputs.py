"""The blocks of rows that stand for the data of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytensor.tensor as pt
from pymc.data import MinibatchOp
from pymc.model import Model
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.variable import TensorVariable

__all__ = ["DrawnRows", "RowInput", "drawn_rows", "graphs_of", "named_rows", "rows_in"]


@dataclass(frozen=True, eq=False)
class RowInput:
    """Data of which every gradient sees a block of consecutive rows.

    Attributes
    ----------
    name : str
        Name of the data container.
    data : ndarray, shape (n_rows, ...)
        All rows.
    block : TensorVariable, shape (batch_size, ...)
        Stands for the block in the graph.
    container : SharedVariable or None
        Where `pymc.Minibatch` has the rows from, if they can be exchanged.
    group : int
        Inputs of the same group see the same rows; those of different groups are drawn apart.
    """

    name: str
    data: np.ndarray
    block: TensorVariable
    container: SharedVariable | None = None
    group: int = 0


type DrawnRows = Mapping[tuple[Variable, int], RowInput]
"""Rows that `pymc.Minibatch` draws, by its generator and the place of the data in its arguments."""


@dataclass(frozen=True)
class _Drawn:
    """What an output of `pymc.Minibatch` is.

    Two nodes that share one generator draw the same rows, so outputs are told apart by the
    generator and their place among its outputs, and not by the node.
    """

    generator: Variable
    place: int
    data: Variable


def _drawn_variables(graphs: Sequence[Variable]) -> dict[Variable, _Drawn]:
    """Find the outputs of `pymc.Minibatch` in graphs."""
    found: dict[Variable, _Drawn] = {}
    for variable in ancestors(graphs):
        node = variable.owner
        if node is not None and isinstance(node.op, MinibatchOp):
            *data, generator = node.inputs
            for place, (output, full) in enumerate(zip(node.outputs[:-1], data, strict=True)):
                found[output] = _Drawn(generator, place, full)
    return found


def _evaluated(variable: Variable) -> np.ndarray:
    if isinstance(variable, Constant):
        return np.asarray(variable.data)
    if isinstance(variable, SharedVariable):
        return np.asarray(variable.get_value(borrow=True))
    return np.asarray(variable.eval())


def _block(name: str, data: np.ndarray, rows: int | None, like: Variable) -> TensorVariable:
    return pt.tensor(name, dtype=like.type.dtype, shape=(rows, *data.shape[1:]))


def graphs_of(model: Model) -> list[Variable]:
    """All that the log-density of a model is made of, in the order of its terms."""
    graphs: list[Variable] = []
    for rv in (*model.free_RVs, *model.observed_RVs):
        graphs += [rv, model.rvs_to_values[rv]]
    return [*graphs, *model.potentials]


def named_rows(
    model: Model, data: Mapping[str, np.ndarray], batch_size: int | None
) -> dict[Variable, RowInput]:
    """Blocks that stand for data containers of a model, by container.

    Parameters
    ----------
    model : pymc.Model
    data : mapping of str to ndarray
        All rows by the names of the containers.
    batch_size : int or None
        Rows of a block; left open by default.
    """
    rows: dict[Variable, RowInput] = {}
    for name, array in data.items():
        container = model[name]
        block = _block(f"{name}_block", array, batch_size, container)
        rows[container] = RowInput(name, array, block)
    return rows


def drawn_rows(graphs: Sequence[Variable]) -> DrawnRows:
    """Rows that `pymc.Minibatch` draws in graphs, as many in a block as it says.

    Returns
    -------
    dict of (generator, int) to RowInput
        By the generator of a `pymc.Minibatch`, and the place of the data among its arguments.
    """
    rows: dict[tuple[Variable, int], RowInput] = {}
    inputs: dict[tuple[Variable, Variable], RowInput] = {}
    groups: dict[Variable, int] = {}
    names: set[str] = set()
    for i, (output, drawn) in enumerate(_drawn_variables(graphs).items()):
        group = groups.setdefault(drawn.generator, len(groups))
        known = drawn.data, drawn.generator
        if known not in inputs:
            data = _evaluated(drawn.data)
            name = getattr(drawn.data, "name", None) or f"minibatch_{i}"
            if name in names:
                name = f"{name} ({i})"
            names.add(name)
            inputs[known] = RowInput(
                name,
                data,
                _block(f"minibatch_{i}_block", data, output.type.shape[0], output),
                drawn.data if isinstance(drawn.data, SharedVariable) else None,
                group,
            )
        rows[drawn.generator, drawn.place] = inputs[known]
    return rows


def rows_in(
    graphs: Sequence[Variable], drawn: DrawnRows, batch_size: int | None = None
) -> dict[Variable, RowInput]:
    """Blocks that stand for what `pymc.Minibatch` draws, by its outputs in the graphs.

    Parameters
    ----------
    graphs : list of Variable
    drawn : mapping of (generator, int) to RowInput
        See `drawn_rows`.
    batch_size : int, optional
        Rows of every block; by default as many as `pymc.Minibatch` says, each group for itself.
    """
    found = {
        output: drawn[each.generator, each.place]
        for output, each in _drawn_variables(graphs).items()
    }
    if batch_size is None:
        return found
    resized = {
        row: replace(row, block=_block(row.block.name, row.data, batch_size, row.block))
        for row in found.values()
    }
    return {output: resized[row] for output, row in found.items()}
