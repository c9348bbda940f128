"""Gradient functions, compiled or Python functions that kernels call by address.

Kernels are compiled once for all models, because they call the log-density by the address of a C
function,

    ``value = logp_grad(position, minibatch, context, output)``

which writes the gradient of the log-density at ``position`` to ``output`` and returns the
log-density (or 0 if the kernel does not need it). ``minibatch`` is an integer, the first row of a
minibatch or a number of rows. ``context`` is an array of integers, usually addresses of data
arrays, that only the function interprets.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numba.np.arrayobj import np_cfarray

from pymc_geodesic.runtime.jit import Integers, compiled, define_intrinsic, machine_address

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
    """Argument of kernels: a gradient function and its context.

    Parameters
    ----------
    address : int
        Machine address of the C function.
    context : ndarray of int64
        Passed to the function.
    """

    address: int
    context: Integers


class GradientFunction:
    """Address of a gradient function, and the objects that own its machine code.

    Parameters
    ----------
    address : int
        Machine address of a C function with the signature of this module.
    keep_alive : object
        Owner of the machine code.

    Attributes
    ----------
    interpreted : bool
        Whether it is a Python function, which one thread can call at a time.
    error : BaseException or None
        The exception that a Python function raised during the last call, if any.
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
def _call(typing_context, address, position, minibatch, context, output):  # type: ignore[no-untyped-def]
    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        double, integer = ir.DoubleType(), ir.IntType(64)
        function_type = ir.FunctionType(
            double, [double.as_pointer(), integer, integer.as_pointer(), double.as_pointer()]
        )
        function = builder.inttoptr(args[0], function_type.as_pointer())
        return builder.call(function, args[1:])

    return SIGNATURE.return_type(types.int64, *SIGNATURE.args), codegen


@define_intrinsic
def array_at(_context: Any, address: Any, shape: Any, dtype: Any) -> tuple[Any, Callable[..., Any]]:
    """View memory as a C-contiguous array (inside compiled code only).

    `numba.carray` does the same, but compiles a function for every kind of array.

    Parameters
    ----------
    address : int or pointer
        Address of the first element.
    shape : tuple of int
    dtype : type of NumPy
    """
    array = types.Array(dtype.dtype, len(shape), "C")
    address = address if isinstance(address, types.CPointer) else types.int64

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        start = arguments[0]
        if address == types.int64:
            start = builder.inttoptr(start, ir.IntType(8).as_pointer())
        return np_cfarray(context, builder, array(types.voidptr, shape), (start, arguments[1]))

    return array(address, shape, dtype), generate


@compiled
def evaluate(
    logp_grad: int, position: np.ndarray, minibatch: int, context: np.ndarray, output: np.ndarray
) -> float:
    """Call a gradient function by address, from compiled code.

    ``output[0]`` is set to NaN first, so that an exception can be detected.
    """
    output[0] = np.nan
    return _call(
        logp_grad, _data_pointer(position), minibatch, _data_pointer(context), _data_pointer(output)
    )


def python_function(function: Callable[[Any, int, Any, Any], float]) -> GradientFunction:
    """Create a gradient function from a Python function.

    Its signature is ``(position, minibatch, context, output) -> float``. Compiled kernels call
    Python once per inner step, so that gradients of any PyTensor backend run in the same loop as
    native ones. The function receives pointers, which
    `numpy.ctypeslib.as_array` converts to arrays. An exception is stored in
    `GradientFunction.error`; the output then still starts with the NaN that `evaluate` wrote.
    """

    @_C_SIGNATURE
    def callback(position, minibatch, context, output):  # type: ignore[no-untyped-def]
        try:
            return function(position, minibatch, context, output)
        except BaseException as error:  # must not propagate through compiled frames
            logp_grad.error = error
            return np.nan

    address = ctypes.cast(callback, ctypes.c_void_p).value
    assert address is not None
    logp_grad = GradientFunction(address, callback, interpreted=True)
    return logp_grad


class NotFiniteError(ArithmeticError):
    """Error for a position, velocity, gradient or log-density that is not finite.

    Parameters
    ----------
    what : str
        Name of the quantity.
    step_size : float, optional
        Step size of the draw; None if none has been chosen.
    vector : ndarray, shape (size,)
        Values of the quantity; the error message names the variables that are not finite.
    at_start : bool
        Whether it is not finite at the starting point of the chain, for every step size.
    """

    def __init__(
        self, what: str, step_size: float | None, vector: np.ndarray, *, at_start: bool = False
    ) -> None:
        super().__init__(f"{what} is not finite")
        self.what, self.step_size, self.vector, self.at_start = what, step_size, vector, at_start


class GradientFunctionLike(Protocol):
    """A gradient function with its context and its errors."""

    callback: Callback

    @property
    def address(self) -> int:
        """Machine address of the function."""

    @property
    def context(self) -> np.ndarray:
        """Context of the function."""

    @property
    def interpreted(self) -> bool:
        """Whether it is a Python function."""

    def raise_error(self) -> None:
        """Raise the exception of a Python function in the last call, if any."""


class ComposedFunction:
    """A gradient function that calls other gradient functions.

    Parameters
    ----------
    function : function of `compiled_for_c`, ``(position, minibatch, context, output) -> float``
        Receives pointers, and the other functions in its context.
    context : ndarray of int64
    inner : list of GradientFunctionLike
        The other functions.
    keep_alive : object
        Owner of the memory to which the context points.
    """

    def __init__(
        self,
        function: Callable[..., float],
        context: np.ndarray,
        inner: Sequence[GradientFunctionLike],
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
        """Context of the function."""
        return self.callback.context

    @property
    def interpreted(self) -> bool:
        """Whether one of the other functions is a Python function."""
        return any(each.interpreted for each in self._inner)

    def raise_error(self) -> None:
        """Raise the exception of a Python function in the last call, if any."""
        for each in self._inner:
            each.raise_error()
