"""Compilation of PyTensor graphs to gradient functions that kernels call by address.

With the Numba backend, the function that PyTensor compiles is wrapped in the C signature of
`pymc_geodesic.runtime.gradient_functions`. With other backends, and for Ops in Numba's object mode,
the kernels call Python.
"""

from __future__ import annotations

import ctypes
import inspect
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytensor.tensor as pt
from numba import cfunc, from_dtype, types
from numba.extending import is_jitted
from pymc.pytensorf import compile as pymc_compile
from pytensor import config
from pytensor.compile.mode import Mode, get_mode
from pytensor.graph.fg import FunctionGraph
from pytensor.link.basic import JITLinker
from pytensor.link.numba.cache import compile_numba_function_src
from pytensor.link.numba.linker import NumbaLinker
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.ops.dense_products import with_loops_for_products
from pymc_geodesic.ops.exponentials import with_vectorized_exponentials
from pymc_geodesic.ops.gamma import with_arithmetic_for_trigamma
from pymc_geodesic.runtime.gradient_functions import (
    SIGNATURE,
    Callback,
    GradientFunction,
    array_at,
    python_function,
)
from pymc_geodesic.runtime.jit import report_long_compilation, source_stamp


@dataclass(frozen=True)
class ArrayInput:
    """An array input of the compiled function, whose address is in the context."""

    variable: TensorVariable
    shape: tuple[int, ...]

    @property
    def dtype(self) -> str:
        """Data type."""
        return self.variable.type.dtype


@dataclass(frozen=True)
class RowBlock(ArrayInput):
    """An input that is a block of consecutive rows of an array.

    ``shape[0]`` is the number of rows, and the argument of the function is the first row. If
    ``shape[0]`` is None, the argument is the number of rows, counted from the first row of the
    array.
    """


class FixedArray(ArrayInput):
    """An input that is a whole array."""


class ResizedArray(ArrayInput):
    """An input whose length may change; ``shape[0]`` is None."""


class CompiledGradient:
    """A compiled gradient function, with its context.

    Parameters
    ----------
    function : GradientFunction
        The function with its machine address.
    inputs : list of ArrayInput

    Attributes
    ----------
    callback : Callback
        Address of the function, and context, for kernels. The context contains the addresses of the
        data, in the order of the inputs, followed by their lengths.
    inputs : list of ArrayInput
    """

    def __init__(self, function: GradientFunction, inputs: Sequence[ArrayInput]) -> None:
        self.function = function
        context = np.zeros(max(2 * len(inputs), 1), dtype=np.int64)
        self.callback = Callback(function.address, context)
        self.inputs = list(inputs)
        self._arrays: list[np.ndarray | None] = [None] * len(inputs)

    @property
    def address(self) -> int:
        """Machine address of the function."""
        return self.callback.address

    @property
    def context(self) -> np.ndarray:
        """Addresses and lengths of the data, an array of int64."""
        return self.callback.context

    @property
    def interpreted(self) -> bool:
        """Whether the function calls Python."""
        return self.function.interpreted

    def point_at(self, position: int, array: np.ndarray) -> None:
        """Set an input to an array, without a copy.

        The array must have the data type of the compiled function, and must not be reallocated.
        """
        expected = self.inputs[position]
        assert array.dtype == expected.dtype, expected
        assert array.flags.c_contiguous, expected
        self._arrays[position] = array
        self.context[position] = array.ctypes.data
        self.context[len(self.inputs) + position] = len(array) if array.ndim else 1

    def raise_error(self) -> None:
        """Raise the exception of the last call of Python, if there was one."""
        if self.function.error is not None:
            error, self.function.error = self.function.error, None
            raise error


def _numba_source(
    coordinate_shapes: Sequence[tuple[int | None, ...]],
    inputs: Sequence[ArrayInput],
    n_outputs: int,
    has_values: bool,
) -> str:
    """Generate the source of the wrapper, which converts addresses to arrays."""
    lines = ["def logp_grad(position, argument, context, output):"]
    if inputs:
        lines.append(f"    addresses = array_at(context, ({2 * len(inputs)},), int64)")
    sizes = [
        " * ".join("argument" if n is None else str(n) for n in shape) or "1"
        for shape in coordinate_shapes
    ]
    lines.append(f"    x = array_at(position, ({' + '.join(sizes)},), float64)")
    arguments = []
    start = "0"
    for i, (shape, size) in enumerate(zip(coordinate_shapes, sizes, strict=True)):
        lengths = "".join("argument, " if n is None else f"{n}, " for n in shape)
        lines.append(f"    start{i} = {start}")
        lines.append(f"    stop{i} = start{i} + {size}")
        lines.append(f"    q{i} = x[start{i}:stop{i}].reshape(({lengths}))")
        arguments.append(f"q{i}")
        start = f"stop{i}"
    for i, data in enumerate(inputs):
        rows_are_argument = isinstance(data, RowBlock) and data.shape[0] is None
        if isinstance(data, RowBlock) and not rows_are_argument:
            row_bytes = int(np.prod(data.shape[1:], dtype=int)) * np.dtype(data.dtype).itemsize
            address = f"addresses[{i}] + argument * {row_bytes}"
        else:
            address = f"addresses[{i}]"
        unknown = f"addresses[{len(inputs) + i}]" if isinstance(data, ResizedArray) else "argument"
        lengths = "".join(f"{unknown if n is None else n}, " for n in data.shape)
        if data.shape:
            lines.append(f"    d{i} = array_at({address}, ({lengths}), {data.dtype})")
        else:
            lines.append(f"    d{i} = array_at({address}, (1,), {data.dtype}).reshape(())")
        arguments.append(f"d{i}")
    lines.append(f"    results = function({', '.join(arguments)})")
    length = f"stop{len(coordinate_shapes) - 1}"
    if has_values:
        length += " + results[0].size"
    lines.append(f"    out = array_at(output, ({length},), float64)")
    first = 1 if has_values else 0
    for i in range(n_outputs):
        # loops, and ravel only if necessary: assigning a slice takes as long as the gradient of a
        # small model
        ravel = "" if len(coordinate_shapes[i]) == 1 else ".ravel()"
        lines.append(f"    flat{i} = results[{i + first}]{ravel}")
        lines.append(f"    for k in range(flat{i}.size):")
        lines.append(f"        out[start{i} + k] = flat{i}[k]")
    if has_values:
        lines.append("    values = results[0]")
        lines.append("    for k in range(values.size):")
        lines.append(f"        out[stop{len(coordinate_shapes) - 1} + k] = values[k]")
    lines.append("    return 0.0")
    return "\n".join(lines) + "\n"


def mode_of(compile_kwargs: dict[str, Any]) -> Mode:
    """Pop the mode from compilation arguments, and add rewrites of this package for Numba.

    Parameters
    ----------
    compile_kwargs : dict
        Modified in place.
    """
    mode = get_mode(compile_kwargs.pop("mode", None))
    if not isinstance(mode.linker, NumbaLinker):
        return mode
    return with_vectorized_exponentials(with_arithmetic_for_trigamma(with_loops_for_products(mode)))


def runs_own_ops(compile_kwargs: Mapping[str, Any] | None) -> bool:
    """Whether the backend can run Ops that have functions for Numba and NumPy."""
    linker = get_mode(dict(compile_kwargs or {}).get("mode")).linker
    return isinstance(linker, NumbaLinker) or not isinstance(linker, JITLinker)


def compile_gradient(
    coordinates: Sequence[TensorVariable],
    inputs: Sequence[ArrayInput],
    gradients: Sequence[TensorVariable],
    values: TensorVariable | None = None,
    compile_kwargs: Mapping[str, Any] | None = None,
) -> CompiledGradient:
    """Compile gradients, and optionally values, to a function for kernels.

    Parameters
    ----------
    coordinates : list of TensorVariable
        Variables of the position, which contains them raveled, in this order. If their first length
        is unknown, it is the argument of the function.
    inputs : list of ArrayInput
        All other inputs of the graphs, in the order of the context.
    gradients : list of TensorVariable
        Gradient with respect to each coordinate, in its shape.
    values : TensorVariable, optional
        Vector that follows the gradients in the output.
    compile_kwargs : mapping, optional
        Passed to `pymc.compile`, such as ``{"mode": "CVM"}``.
    """
    kwargs = dict(compile_kwargs or {})
    mode = mode_of(kwargs)
    is_native = isinstance(mode.linker, NumbaLinker)
    gradients = [g if g.owner is not None else pt.add(g, 0.0) for g in gradients]
    outputs = [*([values] if values is not None else []), *gradients]
    in_pytensor = report_long_compilation("the gradient of the log-density (PyTensor graph)")
    with in_pytensor, _recording_object_mode(is_native) as in_python:
        function = pymc_compile(
            [*coordinates, *(data.variable for data in inputs)],
            outputs,
            mode=mode,
            on_unused_input="ignore",
            trust_input=True,
            **kwargs,
        )
    shapes = [coordinate.type.shape for coordinate in coordinates]
    # compiled code with Python in it would print and ignore exceptions and Ctrl-C
    if is_native and not in_python:
        with report_long_compilation("the gradient of the log-density (machine code)"):
            native = _native(
                function.maker.fgraph, shapes, inputs, len(gradients), values is not None
            )
        return CompiledGradient(native, inputs)
    return _interpreted(function, shapes, inputs, values is not None)


def compile_ahead(function: Any) -> None:
    """Compile a Numba function before its first call, once for all forked chains.

    Parameters
    ----------
    function : pytensor.compile.Function
        Function of C-contiguous arrays. Functions of other backends are already compiled.
    """
    jitted: Any = getattr(function.vm, "jit_fn", None)
    if not is_jitted(jitted):
        return
    inputs = [variable.type for variable in function.maker.fgraph.inputs]
    if all(isinstance(kind, TensorType) for kind in inputs):
        kinds = [types.Array(from_dtype(np.dtype(kind.dtype)), kind.ndim, "C") for kind in inputs]
        if jitted.py_func.__code__.co_flags & inspect.CO_VARARGS:
            kinds = [types.BaseTuple.from_types(kinds)]
        with report_long_compilation("a function of the model (machine code)"):
            jitted.compile(tuple(kinds))


@contextmanager
def _recording_object_mode(is_native: bool) -> Iterator[list[str]]:
    """Record PyTensor's warnings about Ops in Numba's object mode, and reissue them."""
    found: list[str] = []
    if not is_native:
        yield found
        return
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield found
    for each in caught:
        if "Numba will use object mode" in str(each.message):
            found.append(str(each.message))
        warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)


def _native(
    graph: FunctionGraph,
    shapes: Sequence[tuple[int | None, ...]],
    inputs: Sequence[ArrayInput],
    n_outputs: int,
    has_values: bool,
) -> GradientFunction:
    from pytensor.link.numba.dispatch.basic import numba_funcify_and_cache_key, numba_njit

    source = _numba_source(shapes, inputs, n_outputs, has_values)
    jitted, graph_key = numba_funcify_and_cache_key(graph)
    environment = {
        "__name__": __name__,  # Numba's cache imports this module
        "array_at": array_at,
        # inlined: otherwise LLVM optimizes the graph again for each function that calls it
        "function": numba_njit(jitted.py_func, inline="always"),
        **{dtype: getattr(np, dtype) for dtype in {"int64", "float64", *(d.dtype for d in inputs)}},
    }
    cache_key = None
    if graph_key is not None:
        stamp = source_stamp(Path(__file__)), config.numba__fastmath
        cache_key = sha256(f"{__name__}\n{stamp}\n{graph_key}\n{source}".encode()).hexdigest()
    python_function = compile_numba_function_src(
        source, "logp_grad", environment, cache_key=cache_key
    )
    native = cfunc(SIGNATURE, cache=cache_key is not None)(python_function)
    return GradientFunction(native.address, native)


def _interpreted(
    function: Any,
    shapes: Sequence[tuple[int | None, ...]],
    inputs: Sequence[ArrayInput],
    has_values: bool,
) -> CompiledGradient:
    def call(position: Any, argument: int, context: Any, output: Any) -> float:
        parts, total = _parts(shapes, argument)
        x = _view(ctypes.addressof(position.contents), (total,), "float64")
        arguments = [x[part].reshape(shape) for part, shape in parts]
        for i, data in enumerate(inputs):
            is_block = isinstance(data, RowBlock)
            unknown = context[len(inputs) + i] if isinstance(data, ResizedArray) else argument
            shape = tuple(unknown if n is None else n for n in data.shape)
            row_bytes = math.prod(shape[1:]) * np.dtype(data.dtype).itemsize
            moves = is_block and data.shape[0] is not None
            address = context[i] + (argument * row_bytes if moves else 0)
            arguments.append(_view(address, shape, data.dtype))
        results = [np.asarray(r) for r in function(*arguments)]
        values = results.pop(0) if has_values else np.empty(0)
        out = _view(ctypes.addressof(output.contents), (total + values.size,), "float64")
        for (part, _), gradient in zip(parts, results, strict=True):
            out[part] = gradient.ravel()
        out[total:] = values
        return 0.0

    return CompiledGradient(python_function(call), inputs)


def _parts(
    shapes: Sequence[tuple[int | None, ...]], argument: int
) -> tuple[list[tuple[slice, tuple[int, ...]]], int]:
    """List the slice and shape of each coordinate, and compute the length of a position."""
    parts, stop = [], 0
    for shape in shapes:
        known = tuple(argument if n is None else n for n in shape)
        start, stop = stop, stop + math.prod(known)
        parts.append((slice(start, stop), known))
    return parts, stop


def _view(address: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    n_bytes = int(math.prod(shape)) * np.dtype(dtype).itemsize
    if n_bytes == 0:
        return np.empty(shape, dtype)
    memory = (ctypes.c_char * n_bytes).from_address(address)
    return np.frombuffer(memory, dtype=dtype).reshape(shape)
