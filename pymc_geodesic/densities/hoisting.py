"""Splitting a graph into what moves with some inputs and what stands still."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import io_toposort
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorVariable

__all__ = ["FrontierSplit", "split_at_frontier"]


@dataclass
class FrontierSplit:
    """A graph cut where it begins to depend on the moving inputs.

    Attributes
    ----------
    fixed : list of TensorVariable
        Values at the cut, functions of the inputs that stand still.
    inputs : list of TensorVariable
        What stands for them in ``outputs``.
    outputs : list of TensorVariable
        The original outputs as functions of the moving inputs and of ``inputs``.
    """

    fixed: list[TensorVariable]
    inputs: list[TensorVariable]
    outputs: list[TensorVariable]


def _can_be_handed_over(variable: Variable) -> bool:
    """Only the first axis may have an unknown length: that of the rows."""
    return isinstance(variable.type, TensorType) and None not in variable.type.shape[1:]


def split_at_frontier(
    outputs: Sequence[TensorVariable], moving: Sequence[TensorVariable]
) -> FrontierSplit:
    """Cut a graph at the last values that do not depend on the moving inputs.

    Values whose shape is unknown except for the number of rows are computed on the moving
    side.

    Parameters
    ----------
    outputs : list of TensorVariable
    moving : list of TensorVariable
        Inputs that change while everything else stands still.
    """
    outputs = [
        rewrite_graph(output, include=("canonicalize", "stabilize"), clone=False)
        for output in outputs
    ]
    order = io_toposort([], outputs)
    moves: set[Variable] = set(moving)
    needed = []
    for node in order:
        if not moves.isdisjoint(node.inputs):
            moves.update(node.outputs)
            needed.append(node)
    frontier: dict[Variable, None] = {}
    while needed:
        node = needed.pop()
        for variable in node.inputs:
            if variable in moves or isinstance(variable, Constant) or variable in frontier:
                continue
            if variable.owner is None or _can_be_handed_over(variable):
                frontier[variable] = None
            else:
                needed.append(variable.owner)
    for output in outputs:
        if output not in moves and not isinstance(output, Constant):
            frontier[output] = None
    fixed = list(frontier)
    inputs = [variable.type(name=f"fixed_{i}") for i, variable in enumerate(fixed)]
    cut = clone_replace(outputs, dict(zip(fixed, inputs, strict=True)))
    return FrontierSplit(fixed, inputs, cut)
