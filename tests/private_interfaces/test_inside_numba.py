"""What the package takes from inside Numba is there, and works as it assumes.

A test that fails here names the interface that a new version has changed, and its docstring says
what breaks in the package with it.
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
    """`jit.borrow` and gradient functions take the pointer of an array and drop its counter."""

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
    """Manifolds turn it into a sentence about the array that was passed."""
    with pytest.raises(TypingError):
        numba.njit(lambda x: x.no_such_attribute)(1.0)


def test_machine_code_of_a_signature():
    """`kernel.call` is what ``Dispatcher.compile`` returns: code that looks at no types.

    Were it to return the dispatcher, or nothing, each call would spell out the types of all named
    tuples, as much as an inner step of a small model, or there would be no call at all.
    """

    @numba.njit
    def total(x, factor):
        return factor * x.sum()

    code = total.compile((float64[::1], float64))
    assert code(np.arange(4.0), 2) == 12.0
    assert total.compile((float64[::1], float64)) is code
    assert len(total.signatures) == 1, "the code looked at types"
    assert total(np.arange(4.0), 2) == 12.0
    assert len(total.signatures) == 2, "a dispatcher looks at them"


@pytest.mark.slow
@pytest.mark.parametrize("forceinline", [False, True])
def test_part_in_the_place_of_its_call(forceinline):
    """`kernel.part` becomes code of the kernel that calls it, with ``forceinline``.

    Without it a part that is long is called, and inner steps cost what it takes to hand over its
    named tuples.
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
def test_wrappers_that_nobody_calls(option, wrapper):
    """Parts of kernels omit both wrappers, kernels that for C, gradient functions none.

    An option that Numba no longer knows is an error when the package is imported. One without
    effect makes cold starts longer: a wrapper takes longer to compile than many a part. And
    `jit.machine_address` finds the address for C by the name of the wrapper.
    """
    for is_left_out in (False, True):
        half = numba.njit(**{option: is_left_out})(lambda x: 0.5 * x)
        result = half.get_compile_result(float64(float64))
        name = getattr(result.fndesc, wrapper)
        assert (name in result.library.get_llvm_str()) != is_left_out
        if not is_left_out:
            assert result.library.get_pointer_to_function(name)


def test_what_intrinsics_make_arrays_with():
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
