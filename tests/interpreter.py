"""A quicker interpreter for graphs that tests do not compile.

PyTensor evaluates a node in Python within some microseconds, most of them spent on questions whose
answer is the same every time: which function of NumPy it is, what type comes out, whether a length
of one broadcasts. The short chains of tests evaluate millions of nodes.
"""

from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import Any

import numpy as np
import pytensor
import pytest
from pymc.backends.base import BaseTrace
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.tensor.elemwise import Elemwise

MOST_OPERANDS = 32
"""Operands that a universal function of NumPy may have."""


def interpret_quickly(patch: pytest.MonkeyPatch) -> None:
    """Let nodes that apply a function to each number ask their questions once."""
    patch.setattr(Elemwise, "make_py_thunk", make_py_thunk, raising=False)


def interpret_traces(patch: pytest.MonkeyPatch) -> None:
    """Let PyMC interpret what it writes of a draw, which it compiles for every model otherwise."""
    whole = BaseTrace.__init__

    def init(trace: BaseTrace, *args: Any, **kwargs: Any) -> None:
        with pytensor.config.change_flags(mode="FAST_COMPILE"):
            whole(trace, *args, **kwargs)

    patch.setattr(BaseTrace, "__init__", init)


def make_py_thunk(
    op: Elemwise, node: Apply, storage: dict, computed: dict | None, *rest: Any
) -> Any:
    """Stand in for `Op.make_py_thunk`, with the numbers and types of `Elemwise.perform`."""
    function = numpy_function(op, node)
    if function is None:
        return Op.make_py_thunk(op, node, storage, computed, *rest)
    inputs = [storage[variable] for variable in node.inputs]
    (output,) = (storage[variable] for variable in node.outputs)
    is_there = None if computed is None else computed[node.outputs[0]]
    dtype = np.dtype(node.outputs[0].type.dtype)
    checked: list[tuple[int, ...]] | None = None
    quietly = copy_context().run  # which is entered sooner than `np.errstate`
    quietly(np.seterr, all="ignore")

    def thunk() -> None:
        nonlocal checked
        arrays = [cell[0] for cell in inputs]
        shapes = [array.shape for array in arrays]
        if shapes != checked:
            op._check_runtime_broadcast(node, arrays)
            checked = shapes
        result = quietly(function, *arrays)
        if type(result) is not np.ndarray or result.dtype != dtype:
            result = np.asarray(result, dtype=dtype)
        output[0] = result if result.flags.owndata else result.copy()
        if is_there is not None:
            is_there[0] = True

    thunk.inputs, thunk.outputs, thunk.lazy = inputs, [output], False
    return thunk


def numpy_function(op: Elemwise, node: Apply) -> Callable[..., Any] | None:
    """Return what `Elemwise.perform` calls; None for several outputs, or one in place."""
    if op.inplace_pattern or len(node.outputs) != 1 or len(node.inputs) >= MOST_OPERANDS:
        return None
    if op.nfunc and len(node.inputs) == op.nfunc_spec[1]:
        given = {"sig": node.tag.sig} if hasattr(node.tag, "sig") else {}
        return partial(op.nfunc, **given) if given else op.nfunc
    return op.ufunc or getattr(node.tag, "ufunc", None)
