"""Lazily compiled functions that compiled code calls by address."""

import ctypes

import numba
import numpy as np
import pytest

from pymc_geodesic.manifolds import Euclidean, Product, Sphere, product_flows
from pymc_geodesic.manifolds.product_flows import address_of
from pymc_geodesic.runtime.lazy_compilation import VECTOR, lazy

SIGNATURE = numba.float64(VECTOR, numba.int64, numba.float64)


@lazy(SIGNATURE)
def scaled(x, n, factor):
    for i in range(n):
        x[i] *= factor
    return factor


@lazy(SIGNATURE)
def does_not_compile(x, n, factor):
    return x.no_such_attribute


call_scaled, call_broken = scaled.call, does_not_compile.call


@numba.njit
def scale(x, factor):
    return call_scaled((address_of(x, 1), x.size - 1, factor))


@numba.njit
def run_into_an_error(x):
    return call_broken((address_of(x, 0), x.size, 1.0))


def test_the_first_call_compiles_and_calls():
    x = np.arange(1.0, 5.0)
    assert not scaled.is_compiled
    assert scale(x, 2.0) == 2.0
    assert scaled.is_compiled
    np.testing.assert_array_equal(x, [1.0, 4.0, 6.0, 8.0])
    assert scale(x, 0.5) == 0.5
    np.testing.assert_array_equal(x, np.arange(1.0, 5.0))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_failed_compilation_gives_nan():
    """An exception cannot pass through machine code; kernels check for NaN."""
    x = np.ones(3)
    run_into_an_error(x)
    assert np.isnan(x[0])
    assert not does_not_compile.is_compiled


def test_machine_code_has_the_name_of_the_cell_but_no_address():
    """Later processes can use the code on disk."""
    scale(np.ones(3), 1.0)
    (code,) = scale.inspect_llvm().values()
    assert f"@{__name__}.scaled = external" in code.replace('"', "")
    assert str(ctypes.addressof(scaled._cell)) not in code


def test_a_product_compiles_its_functions_before_chains_fork():
    Product([("w", Euclidean(2), 1), ("mu", Sphere(3), 1)])
    assert product_flows._move_on_sphere.is_compiled
    assert product_flows._project_on_sphere.is_compiled
