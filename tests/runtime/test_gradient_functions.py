"""Gradient functions called by address from compiled code."""

import numpy as np
import pytest
from numba import njit, types

from pymc_geodesic.runtime.gradient_functions import array_at, evaluate, python_function
from tests.native_functions import native_function


@njit
def shifted_square(position, argument, context, output):
    """Gradient of Σ (xᵢ − tableᵢ)²/2 in the row ``argument`` of a table in memory."""
    table = array_at(context[0], (4, 3), types.float64)
    total = 0.0
    for i in range(3):
        output[i] = position[i] - table[argument, i]
        total += 0.5 * output[i] ** 2
    return total


def test_native_function_reads_its_context():
    table = np.arange(12.0).reshape(4, 3)
    context = np.array([table.ctypes.data], dtype=np.int64)
    function = native_function(shifted_square, 3, n_context=1)
    output = np.empty(3)
    value = evaluate(function.address, np.ones(3), 2, context, output)
    np.testing.assert_array_equal(output, 1.0 - table[2])
    assert value == 0.5 * np.sum((1.0 - table[2]) ** 2)
    table[2] = 1.0
    assert evaluate(function.address, np.ones(3), 2, context, output) == 0.0


def test_output_may_be_longer_than_the_position():
    @njit
    def with_value(position, argument, context, output):
        output[0] = argument
        output[1] = 2.0 * position[0]
        return 0.0

    function = native_function(with_value, 1, output_size=2)
    output = np.empty(2)
    evaluate(function.address, np.array([3.0]), 5, np.zeros(1, dtype=np.int64), output)
    np.testing.assert_array_equal(output, [5.0, 6.0])


def test_interpreted_function_calls_back():
    def scale(position, argument, context, output):
        x = np.ctypeslib.as_array(position, (3,))
        np.ctypeslib.as_array(output, (3,))[:] = argument * x
        return float(x.sum())

    function = python_function(scale)
    output = np.empty(3)
    x = np.array([1.0, 2.0, 4.0])
    assert evaluate(function.address, x, 3, np.zeros(1, dtype=np.int64), output) == 7.0
    np.testing.assert_array_equal(output, 3.0 * x)
    assert function.error is None


def test_exception_of_an_interpreted_function_is_kept():
    def fails(position, argument, context, output):
        raise ValueError("no gradient here")

    function = python_function(fails)
    output = np.ones(3)
    value = evaluate(function.address, np.ones(3), 0, np.zeros(1, dtype=np.int64), output)
    assert np.isnan(value)
    assert np.isnan(output[0])
    with pytest.raises(ValueError, match="no gradient here"):
        raise function.error
