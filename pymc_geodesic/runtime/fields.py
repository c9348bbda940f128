"""Gradient fields: compiled or interpreted functions that kernels call by address.

A kernel is compiled once, whatever the model, because it sees the log-density only through
the machine address of one C function,

    ``value = field(position, argument, context, output)``

which writes the gradient of the log-density at ``position`` into ``output`` and returns the
log-density (or 0 where the kernel needs no value). ``argument`` is an integer (the first row
of a minibatch, or a number of rows) and ``context`` a table of integers, usually addresses of
data arrays, whose meaning the field alone knows.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from llvmlite import ir
from numba import carray, cfunc, types
from numba.extending import intrinsic
from numba.np.arrayobj import np_cfarray

from pymc_geodesic.runtime.jit import compiled, define_intrinsic, machine_address
from pymc_geodesic.runtime.kernel import Integers

SIGNATURE = types.float64(
    types.CPointer(types.float64),
    types.int64,
    types.CPointer(types.int64),
    types.CPointer(types.float64),
)

_C_SIGNATURE = ctypes.CFUNCTYPE(
    ctypes.c_double,
    ctypes.POINTER(ctypes.c_double),
    ctypes.c_int64,
    ctypes.POINTER(ctypes.c_int64),
    ctypes.POINTER(ctypes.c_double),
)


class Callback(NamedTuple):
    """What a kernel takes for a field.

    Parameters
    ----------
    address : int
        Machine address of the C function.
    context : ndarray of int64
        Passed on to it.
    """

    address: int
    context: Integers


class Field:
    """The address of a compiled field, with what must stay alive while it is in use.

    Parameters
    ----------
    address : int
        Machine address of a C function with the signature of this module.
    keep_alive : object
        Whatever owns that machine code.

    Attributes
    ----------
    interpreted : bool
        Whether a call goes back into Python, where one function serves one thread at a time.
    error : BaseException or None
        The exception raised by an interpreted field during the last call, if any.
    """

    def __init__(self, address: int, keep_alive: Any, *, interpreted: bool = False) -> None:
        self.address = address
        self.interpreted = interpreted
        self.error: BaseException | None = None
        self._keep_alive = keep_alive


@intrinsic
def _data_pointer(typing_context, array):  # type: ignore[no-untyped-def]
    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return context.make_array(signature.args[0])(context, builder, args[0]).data

    return types.CPointer(array.dtype)(array), codegen


@intrinsic
def _call(typing_context, address, position, argument, context, output):  # type: ignore[no-untyped-def]
    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        double, integer = ir.DoubleType(), ir.IntType(64)
        function_type = ir.FunctionType(
            double, [double.as_pointer(), integer, integer.as_pointer(), double.as_pointer()]
        )
        function = builder.inttoptr(args[0], function_type.as_pointer())
        return builder.call(function, args[1:])

    return SIGNATURE.return_type(types.int64, *SIGNATURE.args), codegen


@define_intrinsic
def array_at(_context: Any, place: Any, shape: Any, dtype: Any) -> tuple[Any, Callable[..., Any]]:
    """View memory as a C-contiguous array (inside compiled code only).

    `numba.carray` does the same, but compiles a function for every kind of array.

    Parameters
    ----------
    place : int or pointer
        Where the array begins.
    shape : tuple of int
    dtype : type of NumPy
    """
    array = types.Array(dtype.dtype, len(shape), "C")
    place = place if isinstance(place, types.CPointer) else types.int64

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        start = arguments[0]
        if place == types.int64:
            start = builder.inttoptr(start, ir.IntType(8).as_pointer())
        return np_cfarray(context, builder, array(types.voidptr, shape), (start, arguments[1]))

    return array(place, shape, dtype), generate


@compiled
def evaluate(
    field: int, position: np.ndarray, argument: int, context: np.ndarray, output: np.ndarray
) -> float:
    """Call a field by address, from compiled code.

    ``output[0]`` is set to NaN first, so that a field that fails leaves a trace.
    """
    output[0] = np.nan
    return _call(
        field, _data_pointer(position), argument, _data_pointer(context), _data_pointer(output)
    )


def native_field(
    function: Callable[..., float], size: int, output_size: int | None = None, n_context: int = 0
) -> Field:
    """Make a field of a Numba function ``(position, argument, context, output) -> float``.

    Parameters
    ----------
    function : numba dispatcher
        Writes the gradient, shape ``(output_size,)``, into ``output``.
    size : int
        Length of ``position``.
    output_size : int, optional
        Length of ``output``; that of ``position`` by default.
    n_context : int
        Length of the context table.
    """
    output_size = size if output_size is None else output_size

    @cfunc(SIGNATURE)
    def field(position, argument, context, output):  # type: ignore[no-untyped-def]
        return function(
            carray(position, (size,)),
            argument,
            carray(context, (n_context,)),
            carray(output, (output_size,)),
        )

    return Field(field.address, (field, function))


def interpreted_field(function: Callable[[Any, int, Any, Any], float]) -> Field:
    """Make a field of a Python function ``(position, argument, context, output) -> float``.

    The compiled kernels then call back into Python once per inner step, which is how gradients
    of any other PyTensor backend run in the same loop as native ones. The function receives
    pointers (`numpy.ctypeslib.as_array` views them). What it raises is kept in ``Field.error``;
    the output then still starts with the NaN that `evaluate` put there.
    """

    @_C_SIGNATURE
    def callback(position, argument, context, output):  # type: ignore[no-untyped-def]
        try:
            return function(position, argument, context, output)
        except BaseException as error:  # must not unwind through compiled frames
            field.error = error
            return np.nan

    address = ctypes.cast(callback, ctypes.c_void_p).value
    assert address is not None
    field = Field(address, callback, interpreted=True)
    return field


class FieldLike(Protocol):
    """What a step needs of a field: what kernels call, and its errors."""

    callback: Callback

    @property
    def address(self) -> int:
        """Machine address of the function."""

    @property
    def context(self) -> np.ndarray:
        """What the function reads."""

    @property
    def interpreted(self) -> bool:
        """Whether a call goes back into Python."""

    def raise_error(self) -> None:
        """Raise what an interpreted field raised during the last call, if anything."""


class ComposedField:
    """A field made of other fields.

    Parameters
    ----------
    function : function of `compiled_for_c`, ``(position, argument, context, output) -> float``
        Receives pointers and finds the other fields in its context.
    context : ndarray of int64
        What it reads.
    inner : list of FieldLike
        The other fields.
    keep_alive : object
        Owner of the memory that the context points at.
    """

    def __init__(
        self,
        function: Callable[..., float],
        context: np.ndarray,
        inner: Sequence[FieldLike],
        keep_alive: Any,
    ) -> None:
        self.callback = Callback(machine_address(function, SIGNATURE), context)
        self._inner = tuple(inner)
        self._keep_alive = function, keep_alive

    @property
    def address(self) -> int:
        """Machine address of the function."""
        return self.callback.address

    @property
    def context(self) -> np.ndarray:
        """What the function reads."""
        return self.callback.context

    @property
    def interpreted(self) -> bool:
        """Whether a call of one of the other fields goes back into Python."""
        return any(field.interpreted for field in self._inner)

    def raise_error(self) -> None:
        """Raise what an interpreted field raised during the last call, if anything."""
        for field in self._inner:
            field.raise_error()
