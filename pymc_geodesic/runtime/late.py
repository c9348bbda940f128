"""Functions that compiled code calls by address and that are compiled when they are wanted.

A kernel that knows every manifold would compile every manifold, also for a model that has none of
them, and once more wherever it is inlined. A late function is a cell of memory with an address: at
first that of a function which compiles the true one, puts its address into the cell, and calls it.
Machine code finds the cell by its name, so that it can be kept on disk and used by later processes.
"""

from __future__ import annotations

import _thread
import ctypes
import math
from collections.abc import Callable
from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.extending import intrinsic

from pymc_geodesic.runtime.jit import compiled_for_c, machine_address

VECTOR = types.CPointer(types.float64)

_C_TYPES: dict[Any, Any] = {
    types.float64: ctypes.c_double,
    types.int64: ctypes.c_int64,
    VECTOR: ctypes.c_void_p,
}


class LateFunction:
    """A function for compiled code, which itself is compiled when it is wanted.

    Parameters
    ----------
    function : callable
        Of numbers and pointers, the first one a pointer; returns a float.
    signature : numba signature
        Of float64, int64 and `VECTOR`.

    Attributes
    ----------
    call : intrinsic
        What compiled code calls, with one tuple of all arguments.
    is_compiled : bool
        Whether the true function is there.
    """

    def __init__(self, function: Callable[..., float], signature: Any) -> None:
        self._function = compiled_for_c(function)
        self._signature = signature
        self._type = ctypes.CFUNCTYPE(
            _C_TYPES[signature.return_type], *(_C_TYPES[kind] for kind in signature.args)
        )
        self._first = self._type(self._first_call)
        first = ctypes.cast(self._first, ctypes.c_void_p).value
        assert first is not None
        self._cell = ctypes.c_int64(first)
        self.is_compiled = False
        name = f"{function.__module__}.{function.__qualname__}"
        binding.add_symbol(name, ctypes.addressof(self._cell))
        self.call = _call_through(name, signature)

    def compile(self) -> None:
        """Compile, or load from disk, what later calls go to."""
        if not self.is_compiled:
            self._cell.value = machine_address(self._function, self._signature)
            self.is_compiled = True

    def _first_call(self, *arguments: Any) -> float:
        try:
            self.compile()
        except BaseException as error:
            # An exception cannot pass through compiled frames; NaN is what kernels look for.
            ctypes.c_double.from_address(arguments[0]).value = math.nan
            if isinstance(error, KeyboardInterrupt):
                _thread.interrupt_main()
            raise
        return float(self._type(self._cell.value)(*arguments))


def late(signature: Any) -> Callable[[Callable[..., float]], LateFunction]:
    """Make a `LateFunction` of a function; a decorator.

    Parameters
    ----------
    signature : numba signature

    Examples
    --------
    >>> from pymc_geodesic.manifolds import blocks
    >>> from pymc_geodesic.runtime.late import LateFunction
    >>> any(isinstance(each, LateFunction) for each in vars(blocks).values())
    True
    """
    return lambda function: LateFunction(function, signature)


def _call_through(name: str, signature: Any) -> Any:
    """Call what the cell of a name holds."""

    @intrinsic
    def call(typing_context, packed):  # type: ignore[no-untyped-def]
        def generate(context, builder, _signature, values):  # type: ignore[no-untyped-def]
            cell = context.get_c_value(builder, ir.IntType(64), name)
            function_type = ir.FunctionType(
                context.get_value_type(signature.return_type),
                [context.get_value_type(kind) for kind in signature.args],
            )
            function = builder.inttoptr(builder.load(cell), function_type.as_pointer())
            arguments = [builder.extract_value(values[0], i) for i in range(len(signature.args))]
            return builder.call(function, arguments)

        return signature.return_type(types.BaseTuple.from_types(signature.args)), generate

    return call
