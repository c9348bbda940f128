"""Kernels: compiled functions of few arguments, most of them named tuples of arrays.

Numba spells out the names and types of a tuple whenever Python hands it one, which takes 0.4 µs, as
much as an inner step of a small model. A kernel says the types of its arguments in annotations,
so that `Kernel.call` need not look at them: with five tuples it takes less time than Numba needs
for their contents one by one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, Protocol, cast, get_args, get_origin, get_type_hints

import numpy as np
from numba import boolean, float64, int32, int64, types, uint64

from pymc_geodesic.runtime.jit import compiled

type Vector = Annotated[np.ndarray, float64[::1]]
type Matrix = Annotated[np.ndarray, float64[:, ::1]]
type Integers = Annotated[np.ndarray, int64[::1]]
type SmallIntegers = Annotated[np.ndarray, int32[::1]]
type Table = Annotated[np.ndarray, int64[:, ::1]]
type Flags = Annotated[np.ndarray, boolean[::1]]
type Stream = Annotated[np.ndarray, uint64[::1]]
type Streams = Annotated[np.ndarray, uint64[:, ::1]]
type Stack = Annotated[np.ndarray, float64[:, :, ::1]]


class Kernel[**Arguments, Result](Protocol):
    """A compiled function that knows the types of its arguments.

    Attributes
    ----------
    call : callable
        Machine code for these types, compiled when it is first called or by `prepare`. It does
        not look at the types of what it is given: others than those of the annotations are read
        as if they were these. Calls of the kernel itself are checked, and take longer.
    """

    call: Callable[Arguments, Result]
    py_func: Callable[Arguments, Result]

    def __call__(self, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        """Run the kernel, compiled for the types of these arguments."""


def kernel[**Arguments, Result](
    function: Callable[Arguments, Result],
) -> Kernel[Arguments, Result]:
    """Compile a kernel when it is first called; a decorator.

    Parameters
    ----------
    function : callable
        All of its arguments are annotated with int, float, the types of arrays of this module, or
        named tuples of them.

    Returns
    -------
    Kernel

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.kernels.sgld import sgld
    >>> from pymc_geodesic.runtime.kernel import signature_of
    >>> signature_of(sgld)[2:4]
    (Array(float64, 1, 'C', False, aligned=True), float64)
    """
    made: Any = compiled(function)

    def first_call(*arguments: Any) -> Any:
        made.call = made.compile(signature_of(made))
        return made.call(*arguments)

    # with Numba switched off there is nothing but the function
    made.call = first_call if hasattr(made, "py_func") else made
    return cast("Kernel[Arguments, Result]", made)


def part[Function: Callable[..., Any]](function: Function) -> Function:
    """Compile a named part of a kernel, which compiled code alone can call; a decorator.

    What would make it callable from Python takes longer to compile than many a part itself, and
    to hand its arguments over would take longer than many a step.

    Parameters
    ----------
    function : callable

    Returns
    -------
    compiled function
        With an attribute ``is_part``.
    """
    made: Any = compiled(no_cpython_wrapper=True, forceinline=True)(function)
    made.is_part = True
    return cast("Function", made)


def signature_of(kernel: Any) -> tuple[Any, ...]:
    """Types of the arguments of a kernel, as its annotations have them.

    Parameters
    ----------
    kernel : Kernel

    Returns
    -------
    tuple of numba types

    Raises
    ------
    TypeError
        If an argument has no such annotation.
    """
    function = kernel.py_func
    hints = get_type_hints(function, include_extras=True)
    return tuple(_native(hints.get(name)) for name in inspect.signature(function).parameters)


def _native(annotation: Any) -> Any:
    """Numba's type of what is annotated."""
    if annotation is int:
        return int64
    if annotation is float:
        return float64
    meant = getattr(annotation, "__value__", annotation)
    if get_origin(meant) is Annotated:
        return get_args(meant)[1]
    if hasattr(meant, "_fields"):
        hints = get_type_hints(meant, include_extras=True)
        return types.BaseTuple.from_types([_native(hints[name]) for name in meant._fields], meant)
    raise TypeError(f"a kernel cannot take an argument of type {annotation!r}")
