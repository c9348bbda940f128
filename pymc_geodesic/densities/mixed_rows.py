"""Dependence of a row on the elements of other rows, as in a mean over rows or a random walk."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar.basic import Add, Mul, Neg, Sub
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import Dot
from pytensor.tensor.subtensor import Subtensor
from pytensor.tensor.type import float_dtypes
from pytensor.tensor.variable import TensorVariable


class _MixedRowsError(Exception):
    """A row of an output depends on several rows of an input."""


def inputs_of_mixed_rows(graph: TensorVariable, inputs: set[Variable]) -> set[Variable]:
    """Find the inputs of which the term of one row uses several elements.

    The row axis, the first of the graph and of the inputs, is traced through elementwise functions,
    transposes, subtensors, reductions and matrix products. Other functions are assumed to act on
    each row separately. A sum over rows is allowed if only linear functions follow: the total is
    then still a sum of one term per row.

    Parameters
    ----------
    graph : TensorVariable
        Terms of the rows, or a number.
    inputs : set of Variable
        Vectors with one element per row.
    """
    found: set[Variable] = set()
    pending: list[tuple[Variable, int | None, bool]] = [
        (graph, 0 if graph.type.ndim else None, True)
    ]
    seen = set(pending)
    while pending:
        variable, axis, is_linear = pending.pop()
        used = inputs.intersection(ancestors([variable]))
        # shapes, indices and conditions have no derivatives
        if (
            not used
            or variable in inputs
            or getattr(variable.type, "dtype", None) not in float_dtypes
        ):
            continue
        try:
            for each in _sources(variable.owner, axis, is_linear, inputs):
                if each not in seen:
                    seen.add(each)
                    pending.append(each)
        except _MixedRowsError:
            found |= used
    return found


def _sources(
    node: Any, axis: int | None, is_linear: bool, inputs: set[Variable]
) -> Iterator[tuple[Variable, int | None, bool]]:
    """Yield the inputs of a node, each with its row axis and whether the total is linear in it.

    The row axis is None for a variable without rows, such as a sum over them.

    Raises
    ------
    _MixedRowsError
    """
    source = node.inputs[0]
    op = node.op.core_op if isinstance(node.op, Blockwise) else node.op
    if axis is None:
        if not is_linear:
            raise _MixedRowsError
        if isinstance(op, CAReduce) and isinstance(op.scalar_op, Add):
            yield source, 0 if op.axis is None else op.axis[0], True
            return
    if isinstance(op, CheckAndRaise):  # the conditions are no part of the value
        yield source, axis, is_linear
    elif isinstance(op, Elemwise):
        is_linear = is_linear and _is_linear(node, inputs)
        for each in node.inputs:
            is_same = axis is not None and each.type.shape[axis] != 1
            yield each, axis if is_same else None, is_linear
    elif axis is None:
        yield from ((each, None, isinstance(op, DimShuffle)) for each in node.inputs)
    elif isinstance(op, DimShuffle):
        old = op.new_order[axis]
        yield source, None if old == "x" else old, is_linear
    elif isinstance(op, CAReduce):
        kept = [k for k in range(source.type.ndim) if k not in op.axis]
        yield source, kept[axis], is_linear and isinstance(op.scalar_op, Add)
    elif isinstance(op, Subtensor):
        axes = [k for k in range(source.type.ndim) if not _is_number(op.idx_list[k : k + 1])]
        if op.idx_list[axes[axis] : axes[axis] + 1] not in ([], [slice(None)], (), (slice(None),)):
            raise _MixedRowsError
        yield source, axes[axis], is_linear
    elif isinstance(op, Dot):
        left, right = node.inputs
        of_row, other = (left, right) if axis == 0 and left.type.ndim == 2 else (right, left)
        if not inputs.isdisjoint(ancestors([other])):
            raise _MixedRowsError
        yield of_row, axis, is_linear
    elif isinstance(op, CumOp) and op.axis in (None, axis):
        raise _MixedRowsError
    else:
        yield from (
            (each, axis, False)
            for each in node.inputs
            if getattr(each.type, "ndim", None) == node.outputs[0].type.ndim
        )


def _is_number(index: Any) -> bool:
    """Whether the index of an axis, in a sequence of length one or none, removes the axis."""
    return len(index) == 1 and not isinstance(index[0], slice)


def _is_linear(node: Any, inputs: set[Variable]) -> bool:
    """Whether the output of an elementwise function is linear in what depends on the inputs."""
    if isinstance(node.op.scalar_op, Mul):
        return sum(not inputs.isdisjoint(ancestors([each])) for each in node.inputs) == 1
    return isinstance(node.op.scalar_op, Add | Sub | Neg)
