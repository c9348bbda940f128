"""The blocks of rows that stand for the data of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pytensor.tensor as pt
from pymc.data import MinibatchOp
from pymc.model import Model
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.variable import TensorVariable

__all__ = ["RowInput", "drawn_rows", "minibatch_variables", "named_rows"]


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


def minibatch_variables(
    graphs: Sequence[Variable],
) -> dict[Variable, tuple[Variable, Variable]]:
    """Find the outputs of `pymc.Minibatch` in graphs, with full data and generator of each.

    Two nodes that share one generator draw the same rows, so outputs are told apart by the
    generator and the data and not by the node.
    """
    found: dict[Variable, tuple[Variable, Variable]] = {}
    for variable in ancestors(graphs):
        node = variable.owner
        if node is not None and isinstance(node.op, MinibatchOp):
            *data, generator = node.inputs
            for output, full in zip(node.outputs[:-1], data, strict=True):
                found[output] = full, generator
    return found


def _evaluated(variable: Variable) -> np.ndarray:
    if isinstance(variable, Constant):
        return np.asarray(variable.data)
    if isinstance(variable, SharedVariable):
        return np.asarray(variable.get_value(borrow=True))
    return np.asarray(variable.eval())


def _block(name: str, data: np.ndarray, rows: int | None, like: Variable) -> TensorVariable:
    return pt.tensor(name, dtype=like.type.dtype, shape=(rows, *data.shape[1:]))


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


def drawn_rows(
    graphs: Sequence[Variable], batch_size: int | None = None
) -> dict[Variable, RowInput]:
    """Blocks that stand for what `pymc.Minibatch` draws, by its outputs in the graphs.

    Parameters
    ----------
    graphs : list of Variable
    batch_size : int, optional
        Rows of every block; by default as many as `pymc.Minibatch` says, each group for itself.
    """
    blocks: dict[Variable, RowInput] = {}
    inputs: dict[tuple[Variable, Variable], RowInput] = {}
    groups: dict[Variable, int] = {}
    names: set[str] = set()
    for i, (output, (full, generator)) in enumerate(minibatch_variables(graphs).items()):
        group = groups.setdefault(generator, len(groups))
        if (full, generator) not in inputs:
            data = _evaluated(full)
            size = output.type.shape[0] if batch_size is None else batch_size
            name = getattr(full, "name", None) or f"minibatch_{i}"
            if name in names:
                name = f"{name} ({i})"
            names.add(name)
            inputs[full, generator] = RowInput(
                name,
                data,
                _block(f"minibatch_{i}_block", data, size, output),
                full if isinstance(full, SharedVariable) else None,
                group,
            )
        blocks[output] = inputs[full, generator]
    return blocks
