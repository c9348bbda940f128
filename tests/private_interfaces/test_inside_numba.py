"""Private interfaces of Numba that the package uses.

A failing test names the interface that a new version has changed; its docstring states what
depends on it.
"""

import numba
import numpy as np
import pytest
from numba import float64
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic
from numba.np.arrayobj import np_cfarray

from pymc_geodesic.runtime import jit


def test_arrays_inside_an_intrinsic():
    """`jit.borrow` and gradient functions take pointers of arrays without counting references."""

    @jit.compiled(cache=False)
    def total(x):
        borrowed = jit.borrow(x)
        result = 0.0
        for i in range(borrowed.size):
            result += borrowed[i]
        return result

    assert total(np.arange(4.0)) == 6.0
    (code,) = total.inspect_llvm().values()
    body = code.partition("define ")[2].partition("\n}")[0]
    assert "NRT_incref" not in body


def test_error_of_types_that_do_not_fit():
    """Manifolds replace it by an error message about the argument."""
    with pytest.raises(TypingError):
        numba.njit(lambda x: x.no_such_attribute)(1.0)


def test_machine_code_of_a_signature():
    """`kernel.call` is the result of ``Dispatcher.compile``: code that does not check types.

    If it returned the dispatcher, each call would determine the types of all named tuples, which
    takes as long as an inner step of a small model.
    """

    @numba.njit
    def total(x, factor):
        return factor * x.sum()

    code = total.compile((float64[::1], float64))
    assert code(np.arange(4.0), 2) == 12.0
    assert total.compile((float64[::1], float64)) is code
    assert len(total.signatures) == 1, "the code checked types"
    assert total(np.arange(4.0), 2) == 12.0
    assert len(total.signatures) == 2, "a dispatcher checks them"


@pytest.mark.slow
@pytest.mark.parametrize("forceinline", [False, True])
def test_parts_are_inlined(forceinline):
    """With ``forceinline``, `jit.part` is inlined in the kernel that calls it.

    Otherwise a long part is called, and each inner step passes its named tuples.
    """

    @numba.njit(forceinline=forceinline)
    def long_part(x, y):
        for i in range(x.size):
            x[i] = np.sin(x[i]) + np.exp(y[i]) * np.log(x[i]) + np.cos(x[i] * y[i])
            y[i] = np.tan(x[i]) + np.arctan(y[i]) / np.tanh(x[i]) + np.sqrt(x[i] + y[i])
            x[i] += np.sinh(y[i]) * np.expm1(x[i]) - np.arctan2(x[i], y[i]) * np.cosh(x[i])
        x[:], y[:] = np.sort(x), np.cumsum(y)

    @numba.njit
    def calls_twice(x, y):
        long_part(x, y)
        long_part(y, x)

    calls_twice.compile((float64[::1], float64[::1]))
    (code,) = calls_twice.inspect_llvm().values()
    body = code.partition("define ")[2].partition("\n}")[0]
    assert ("long_part" not in body.partition("{")[2]) == forceinline


@pytest.mark.parametrize(
    ("option", "wrapper"),
    [
        ("no_cpython_wrapper", "llvm_cpython_wrapper_name"),
        ("no_cfunc_wrapper", "llvm_cfunc_wrapper_name"),
    ],
)
def test_wrappers_without_a_caller(option, wrapper):
    """Parts omit both wrappers, kernels the one for C, functions for C the one for Python.

    An option that Numba no longer has raises an error when the package is imported; one without
    effect makes first calls slower, since a wrapper often takes longer to compile than a part.
    `jit.machine_address` finds the address for C by the name of the wrapper.
    """
    for is_left_out in (False, True):
        half = numba.njit(**{option: is_left_out})(lambda x: 0.5 * x)
        result = half.get_compile_result(float64(float64))
        name = getattr(result.fndesc, wrapper)
        assert (name in result.library.get_llvm_str()) != is_left_out
        if not is_left_out:
            assert result.library.get_pointer_to_function(name)


def test_arrays_and_copies_in_intrinsics():
    """`np_cfarray` views memory as an array, `raw_memmove` counts items and their size."""

    @intrinsic
    def second_half_twice(_context, array):
        def generate(context, builder, signature, arguments):
            inner = context.make_array(array)(context, builder, arguments[0])
            half = builder.udiv(inner.nitems, inner.nitems.type(2))
            cgutils.raw_memmove(
                builder, inner.data, builder.gep(inner.data, [half]), half, inner.itemsize
            )
            shape = cgutils.pack_array(builder, [half])
            of = array(numba.types.CPointer(array.dtype), numba.types.UniTuple(numba.intp, 1))
            return np_cfarray(context, builder, of, (inner.data, shape))

        return array(array), generate

    numbers = np.arange(6.0)
    first_half = numba.njit(lambda x: second_half_twice(x).copy())(numbers)
    np.testing.assert_array_equal(first_half, [3.0, 4.0, 5.0])
    np.testing.assert_array_equal(numbers, [3.0, 4.0, 5.0, 3.0, 4.0, 5.0])
