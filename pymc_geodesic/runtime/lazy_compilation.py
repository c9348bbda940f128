"""Lazily compiled functions, which compiled code calls by address.

Without them a kernel that supports all manifolds would compile the functions of all manifolds for
every model. A lazy function is a memory cell with an address: initially that of a stub that
compiles the function, stores its address in the cell, and calls it. Machine code refers to the cell
by a symbol, so that it can be cached on disk and used by later processes.
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


class LazyFunction:
    """A function for compiled code that is compiled at its first call.

    Parameters
    ----------
    function : callable
        Function of numbers and pointers, the first argument a pointer, that returns a float.
    signature : numba signature
        Signature with the types float64, int64 and `VECTOR`.

    Attributes
    ----------
    call : intrinsic
        Function for compiled code, which passes a tuple of all arguments.
    is_compiled : bool
        Whether the function has been compiled.
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
        """Compile the function, or load it from disk."""
        if not self.is_compiled:
            self._cell.value = machine_address(self._function, self._signature)
            self.is_compiled = True

    def _first_call(self, *arguments: Any) -> float:
        try:
            self.compile()
        except BaseException as error:
            # An exception cannot propagate through compiled frames; kernels check for NaN.
            ctypes.c_double.from_address(arguments[0]).value = math.nan
            if isinstance(error, KeyboardInterrupt):
                _thread.interrupt_main()
            raise
        return float(self._type(self._cell.value)(*arguments))


def lazy(signature: Any) -> Callable[[Callable[..., float]], LazyFunction]:
    """Decorate a function to make it a `LazyFunction`.

    Parameters
    ----------
    signature : numba signature

    Examples
    --------
    >>> from pymc_geodesic.manifolds import product_flows
    >>> from pymc_geodesic.runtime.lazy_compilation import LazyFunction
    >>> any(isinstance(each, LazyFunction) for each in vars(product_flows).values())
    True
    """
    return lambda function: LazyFunction(function, signature)


def _call_through(name: str, signature: Any) -> Any:
    """Create the intrinsic that calls the function whose address is in the cell of this name."""

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
