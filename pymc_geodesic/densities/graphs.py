"""PyTensor graphs: evaluation in Python, inputs of other shapes, and splitting by dependence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import prod
from typing import Any

import pytensor
import pytensor.scalar as ps
from pytensor.compile.builders import SymbolicOp
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.rewriting.db import RewriteDatabaseQuery
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import io_toposort
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import Alloc, get_underlying_scalar_constant_value
from pytensor.tensor.einsum import Einsum, einsum
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.shape import Shape_i, SpecifyShape
from pytensor.tensor.variable import TensorVariable

_UNOPTIMIZED = Mode(linker="py", optimizer=None)
_STABLE = Mode(linker="py", optimizer=RewriteDatabaseQuery(include=("canonicalize", "stabilize")))

_ELEMENTARY_FUNCTIONS = (
    *(ps.Exp, ps.Exp2, ps.Expm1, ps.Log, ps.Log1p, ps.Log2, ps.Log10, ps.Pow),
    *(ps.Sin, ps.Cos, ps.Tan, ps.ArcSin, ps.ArcCos, ps.ArcTan, ps.ArcTan2),
    *(ps.Sinh, ps.Cosh, ps.Tanh, ps.ArcSinh, ps.ArcCosh, ps.ArcTanh),
)
"""Transcendental functions of ``pytensor.scalar.basic``; special functions are in other modules."""

MAX_CONSTANT_SIZE = 64
"""Maximum number of elements of a constant in compiled code; larger constants become inputs, since
they slow down compilation."""

_MIN_ELEMENTS = 100
"""Minimum number of elements for which a function is computed in advance. At 5 to 15 ns each, fewer
take less time than one step of a sampler."""

# --- evaluation in Python -----------------------------------------------------------------------


def without_c_compiler() -> AbstractContextManager[Any]:
    """Return a context in which PyTensor does not call the C compiler.

    With ``mode="FAST_COMPILE"`` PyTensor interprets a function, but compiles the inner graphs of
    Ops, such as a softmax or a symbolic random variable, in C, which takes 0.5 s for each node.

    Examples
    --------
    >>> import pytensor
    >>> from pymc_geodesic.densities.graphs import without_c_compiler
    >>> with without_c_compiler():
    ...     pytensor.config.cxx
    ''
    """
    return pytensor.config.change_flags(cxx="")


def unoptimized_function(
    inputs: Sequence[Variable], outputs: Variable | Sequence[Variable]
) -> pytensor.compile.Function:
    """Create a function that evaluates a graph in Python, without rewriting it.

    For a few evaluations this is faster than rewriting. Rewrites would also remove parameter
    checks, whose messages are reported to users.

    Parameters
    ----------
    inputs : list of variables
        Inputs; unused ones are ignored.
    outputs : variable or list of variables

    Returns
    -------
    callable

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from pymc_geodesic.densities.graphs import unoptimized_function
    >>> x, y = pt.scalars("x", "y")
    >>> unoptimized_function([x, y], x + 1.0)(2.0, 0.0).item()
    3.0
    """
    return _in_python(inputs, outputs, _UNOPTIMIZED)


def stable_function(
    inputs: Sequence[Variable], outputs: Variable | Sequence[Variable]
) -> pytensor.compile.Function:
    """Create a function that evaluates a graph in Python, with PyTensor's stable formulas.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from pymc_geodesic.densities.graphs import stable_function, unoptimized_function
    >>> x = pt.dscalar("x")
    >>> graph = pt.log(pt.sigmoid(x))
    >>> unoptimized_function([x], graph)(-800.0).item(), stable_function([x], graph)(-800.0).item()
    (-inf, -800.0)
    """
    return _in_python(inputs, outputs, _STABLE)


def _in_python(
    inputs: Sequence[Variable], outputs: Variable | Sequence[Variable], mode: Mode
) -> pytensor.compile.Function:
    given: Any = outputs
    with without_c_compiler():
        return pytensor.function(
            list(inputs),
            given,
            mode=mode,
            on_unused_input="ignore",
            allow_input_downcast=True,
        )


# --- replacement of inputs ----------------------------------------------------------------------


def rebuild_graphs(
    outputs: Sequence[TensorVariable], replacements: Mapping[Variable, Variable]
) -> list[TensorVariable]:
    """Replace variables by others with any number of rows, and rebuild the nodes that use them.

    The static shapes of the original nodes are wrong for another number of rows. So are the
    assertions that PyMC inserts when it replaces a random variable by its value, and the
    broadcasting of log-densities to the original number of rows; both are removed.

    Parameters
    ----------
    outputs : list of TensorVariable
    replacements : mapping of Variable to Variable
        Replacements with the same number of dimensions and data type.
    """
    memo = dict(replacements)
    for node in io_toposort([], outputs):
        if memo.keys().isdisjoint(node.inputs) or not memo.keys().isdisjoint(node.outputs):
            continue
        inputs = [memo.get(variable, variable) for variable in node.inputs]
        if isinstance(node.op, SpecifyShape) or _broadcasts_to_own_shape(node):
            memo[node.outputs[0]] = inputs[0]
        elif isinstance(node.op, SymbolicOp):  # its inner graph is specific to the input shapes
            memo.update(zip(node.outputs, node.op(*inputs, return_list=True), strict=True))
        elif isinstance(node.op, Einsum):  # the same
            memo[node.outputs[0]] = einsum(node.op.subscripts, *inputs)
        else:
            rebuilt = node.clone_with_new_inputs(inputs, strict=False)
            memo.update(zip(node.outputs, rebuilt.outputs, strict=True))
    return [memo.get(output, output) for output in outputs]


def _broadcasts_to_own_shape(node: Apply) -> bool:
    """Whether a node broadcasts a value to its own shape.

    PyTensor does not broadcast an axis whose length is unknown when the graph is built.
    """
    if not isinstance(node.op, Alloc):
        return False
    return node.inputs[0].type.broadcastable == node.outputs[0].type.broadcastable


# --- splitting by dependence --------------------------------------------------------------------


@dataclass
class FrontierSplit:
    """A graph split into a part that depends on some inputs and a part that does not.

    Attributes
    ----------
    fixed : list of TensorVariable
        Values at the frontier, which depend on the other inputs only and are computed once.
    inputs : list of TensorVariable
        Inputs that replace ``fixed`` in ``outputs``.
    outputs : list of TensorVariable
        The original outputs as functions of the varying inputs and of ``inputs``.
    """

    fixed: list[TensorVariable]
    inputs: list[TensorVariable]
    outputs: list[TensorVariable]


def split_at_frontier(
    outputs: Sequence[TensorVariable],
    varying: Sequence[TensorVariable],
    rows: Sequence[TensorVariable] = (),
) -> FrontierSplit:
    """Split a graph at the last values that do not depend on the varying inputs.

    Values of unknown shape are computed on the varying side, unless only the number of rows is
    unknown.

    Parameters
    ----------
    outputs : list of TensorVariable
    varying : list of TensorVariable
        Inputs that change while all others are fixed.
    rows : list of TensorVariable
        Inputs whose first axes have the same, unknown length.
    """
    outputs = [
        rewrite_graph(output, include=("canonicalize", "stabilize"), clone=False)
        for output in outputs
    ]
    order = io_toposort([], outputs)
    varies: set[Variable] = set(varying)
    needed = []
    for node in order:
        if not varies.isdisjoint(node.inputs):
            varies.update(node.outputs)
            needed.append(node)
    fixed_values = [out for node in order for out in node.outputs if out not in varies]
    with_rows = _with_length_of_rows(list(filter(_only_length_unknown, fixed_values)), rows)
    frontier: dict[Variable, None] = {}
    while needed:
        node = needed.pop()
        for variable in node.inputs:
            if variable in varies or isinstance(variable, Constant) or variable in frontier:
                continue
            is_known = None not in getattr(variable.type, "shape", (None,))
            if variable.owner is None or is_known or variable in with_rows:
                frontier[variable] = None
            else:
                needed.append(variable.owner)
    for output in outputs:
        if output not in varies and not isinstance(output, Constant):
            frontier[output] = None
    fixed = list(frontier)
    inputs = [variable.type(name=f"fixed_{i}") for i, variable in enumerate(fixed)]
    split = clone_replace(outputs, dict(zip(fixed, inputs, strict=True)))
    return FrontierSplit(fixed, inputs, split)


def split_at_transcendental(
    outputs: Sequence[TensorVariable], varying: Sequence[TensorVariable]
) -> FrontierSplit:
    """Split a graph at transcendental functions of the inputs that do not vary.

    Examples are ``gammaln(y + 1)`` of counts y and ``log(y)``. Casts, comparisons and products of
    data remain in the outputs, and so do functions of fewer than 100 elements, values of unknown
    shape, and checks of parameters. A stored value takes 8 bytes per element.

    The graph is not rewritten, since PyTensor fuses fewer loops when it rewrites a graph twice.

    Parameters
    ----------
    outputs : list of TensorVariable
    varying : list of TensorVariable
        Inputs that change while all others are fixed.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from pymc_geodesic.densities.graphs import split_at_transcendental
    >>> theta, y = pt.dscalar("theta"), pt.tensor("y", dtype="float64", shape=(200,))
    >>> split = split_at_transcendental([pt.sum(2.0 * y * theta - pt.gammaln(y + 1.0))], [theta])
    >>> [value.type.shape for value in split.fixed]
    [(200,)]
    """
    varies, fixed, operands = set[Variable](varying), set[Variable](), set[Variable]()
    needed: list[Variable] = list(outputs)
    for node in io_toposort([], outputs):
        if isinstance(node.op, CheckAndRaise) or not varies.isdisjoint(node.inputs):
            varies.update(node.outputs)
            needed += node.inputs
            if _applies(node, ps.Add, ps.Sub) or (
                _applies(node, ps.Mul, ps.TrueDiv)
                and any(x in varies and _is_exponential(x) for x in node.inputs)
            ):
                operands.update(node.inputs)
        elif _is_transcendental(node) or not fixed.isdisjoint(node.inputs):
            fixed.update(node.outputs)
    stored: dict[Variable, None] = {}
    while needed:
        variable = needed.pop()
        if variable not in fixed:
            continue
        fixed.remove(variable)
        if None in getattr(variable.type, "shape", (None,)):
            needed += variable.owner.inputs
        elif variable not in operands or not _is_exponential(variable):
            stored[variable] = None
    inputs = [variable.type(name=f"fixed_{i}") for i, variable in enumerate(stored)]
    split = clone_replace(outputs, dict(zip(stored, inputs, strict=True)))
    return FrontierSplit(list(stored), inputs, split)


def _applies(node: Apply, *functions: type[ps.ScalarOp]) -> bool:
    """Whether a node applies one of some scalar functions elementwise."""
    return isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, functions)


def _is_transcendental(node: Apply) -> bool:
    """Whether a node computes a transcendental function of many elements."""
    if not isinstance(node.op, Elemwise):
        return False
    shape = node.outputs[0].type.shape
    if None not in shape and prod(shape) < _MIN_ELEMENTS:
        return False
    if _applies(node, ps.Pow):
        exponent = get_underlying_scalar_constant_value(node.inputs[1], raise_not_constant=False)
        return isinstance(exponent, Variable) or exponent % 1 != 0
    is_special = type(node.op.scalar_op).__module__ != ps.basic.__name__
    return is_special or _applies(node, *_ELEMENTARY_FUNCTIONS)


def _is_exponential(variable: Variable) -> bool:
    """Whether a value is an exponential.

    PyTensor rewrites log(exp(a) + exp(b)) and exp(a) exp(b), which may otherwise overflow.
    """
    while variable.owner is not None and isinstance(variable.owner.op, DimShuffle):
        variable = variable.owner.inputs[0]
    return variable.owner is not None and _applies(variable.owner, ps.Exp)


def _only_length_unknown(variable: Variable) -> bool:
    """Whether the shape is known except for the length of the first axis."""
    shape = getattr(variable.type, "shape", ())
    return shape[:1] == (None,) and None not in shape[1:]


def _with_length_of_rows(variables: Sequence[Variable], rows: Sequence[Variable]) -> set[Variable]:
    """Find variables whose first axis has the length of the rows, by shape inference."""
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
