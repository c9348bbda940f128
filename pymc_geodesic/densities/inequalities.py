"""What moves in a graph with the sampled variables, and the inequalities about it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import io_toposort
from pytensor.scalar.basic import GE, GT, LE, LT, Cast
from pytensor.tensor.basic import Alloc
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.shape import Shape, Shape_i


def scalar_op(variable: Variable) -> object:
    """Return the operation on single numbers that made a variable, if it was one."""
    node = variable.owner
    if node is not None and isinstance(node.op, Elemwise):
        return node.op.scalar_op
    return None


def is_minus_infinity(variable: Variable) -> bool:
    """Return whether a variable is the constant −∞, in whatever shape."""
    node = variable.owner
    while node is not None:
        if not isinstance(node.op, DimShuffle | Alloc) and not isinstance(
            scalar_op(variable), Cast
        ):
            return False
        variable = node.inputs[0]
        node = variable.owner
    return isinstance(variable, Constant) and bool(np.all(np.equal(variable.data, -np.inf)))


def what_moves(graphs: Sequence[Variable], sampled: set[Variable]) -> set[Variable]:
    """Variables in graphs whose value, and not only whose shape, depends on what is sampled."""
    moving = set(sampled)
    for node in io_toposort([], graphs):
        if not isinstance(node.op, Shape | Shape_i) and not moving.isdisjoint(node.inputs):
            moving.update(node.outputs)
    return moving


def compares(condition: Variable, moving: set[Variable]) -> bool:
    """Whether a condition is an inequality about something that moves, or made of such."""
    if condition not in moving or condition.type.dtype != "bool" or condition.owner is None:
        return False
    if isinstance(scalar_op(condition), LT | GT | LE | GE):
        return True
    return any(compares(each, moving) for each in condition.owner.inputs)
