"""PyTensor graphs: evaluation in Python, replacement of inputs, and splitting by dependence."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import pytensor
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import io_toposort
from pytensor.tensor.shape import Shape_i
from pytensor.tensor.variable import TensorVariable

_AS_WRITTEN = Mode(linker="py", optimizer=None)


def interpreting() -> AbstractContextManager[Any]:
    """Compile nothing meanwhile, of functions that PyTensor interprets.

    It interprets them by ``mode="FAST_COMPILE"``, but has a C compiler compile the graphs within
    Ops, such as a softmax or a symbolic random variable: half a second for each of their nodes.

    Examples
    --------
    >>> import pytensor
    >>> from pymc_geodesic.densities.graphs import interpreting
    >>> with interpreting():
    ...     pytensor.config.cxx
    ''
    """
    return pytensor.config.change_flags(cxx="")


def function_as_written(
    inputs: Sequence[Variable], outputs: Variable | Sequence[Variable]
) -> pytensor.compile.Function:
    """Evaluate a graph in Python, where rewriting would take longer than the few evaluations.

    Rewrites would also take away checks of parameters that a user wants to read.

    Parameters
    ----------
    inputs : list of variables
        Those that the outputs do not depend on are ignored.
    outputs : variable or list of variables

    Returns
    -------
    callable

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from pymc_geodesic.densities.graphs import function_as_written
    >>> x, y = pt.scalars("x", "y")
    >>> function_as_written([x, y], x + 1.0)(2.0, 0.0).item()
    3.0
    """
    given: Any = outputs
    with interpreting():
        return pytensor.function(list(inputs), given, mode=_AS_WRITTEN, on_unused_input="ignore")


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


def _open_at_first(variable: Variable) -> bool:
    """Whether the length of the first axis is all that is unknown of a shape."""
    shape = getattr(variable.type, "shape", ())
    return shape[:1] == (None,) and None not in shape[1:]


def _as_long_as_rows(variables: Sequence[Variable], rows: Sequence[Variable]) -> set[Variable]:
    """Those of some variables whose length is seen to be that of the rows."""
    if not (variables and rows):
        return set()
    blocks = [row.type() for row in rows]
    lengths = clone_replace(
        [variable.shape[0] for variable in variables], dict(zip(rows, blocks, strict=True))
    )
    lengths = rewrite_graph(lengths, include=("ShapeOpt", "canonicalize"), clone=False)
    return {
        variable
        for variable, length in zip(variables, lengths, strict=True)
        if length.owner is not None
        and isinstance(length.owner.op, Shape_i)
        and length.owner.op.i == 0
        and length.owner.inputs[0] in blocks
    }


def split_at_frontier(
    outputs: Sequence[TensorVariable],
    moving: Sequence[TensorVariable],
    rows: Sequence[TensorVariable] = (),
) -> FrontierSplit:
    """Cut a graph at the last values that do not depend on the moving inputs.

    Values whose shape is unknown are computed on the moving side, unless it is the number of rows
    that is unknown.

    Parameters
    ----------
    outputs : list of TensorVariable
    moving : list of TensorVariable
        Inputs that change while everything else stands still.
    rows : list of TensorVariable
        Inputs with a first axis of any length, the same for all of them.
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
    still = [out for node in order for out in node.outputs if out not in moves]
    of_rows = _as_long_as_rows(list(filter(_open_at_first, still)), rows)
    frontier: dict[Variable, None] = {}
    while needed:
        node = needed.pop()
        for variable in node.inputs:
            if variable in moves or isinstance(variable, Constant) or variable in frontier:
                continue
            is_known = None not in getattr(variable.type, "shape", (None,))
            if variable.owner is None or is_known or variable in of_rows:
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
