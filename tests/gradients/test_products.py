import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import get_mode
from pytensor.tensor.math import Dot

from pymc_geodesic.gradients.products import with_loops_for_products

ROWS, COLUMNS = 7, 3


def compiled_product(left, right, mode="NUMBA"):
    return pytensor.function(
        [left, right], left @ right, mode=with_loops_for_products(get_mode(mode))
    )


def calls_blas(function) -> bool:
    return any(isinstance(node.op, Dot) for node in function.maker.fgraph.apply_nodes)


def matrix(rows=ROWS, columns=COLUMNS, dtype="float64"):
    return pt.tensor(shape=(rows, columns), dtype=dtype)


def vector(size, dtype="float64"):
    return pt.tensor(shape=(size,), dtype=dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((ROWS, COLUMNS), (COLUMNS,)),
        ((ROWS,), (ROWS, COLUMNS)),
        ((COLUMNS,), (COLUMNS,)),
        ((1, COLUMNS), (COLUMNS, ROWS)),
        ((ROWS, COLUMNS), (COLUMNS, 1)),
    ],
    ids=str,
)
def test_product_with_a_vector_is_a_loop_with_the_same_value(left, right, dtype):
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=left).astype(dtype), rng.normal(size=right).astype(dtype)
    function = compiled_product(
        pt.tensor(shape=left, dtype=dtype), pt.tensor(shape=right, dtype=dtype)
    )
    assert not calls_blas(function)
    result = function(a, b)
    assert result.dtype == dtype
    np.testing.assert_allclose(result, a @ b, rtol=1e-5 if dtype == "float32" else 1e-12)


def test_product_with_a_transposed_matrix_reads_its_rows():
    rng = np.random.default_rng(2)
    stored, weights = rng.normal(size=(ROWS, COLUMNS)), rng.normal(size=ROWS)
    x, w = matrix(), vector(ROWS)
    mode = with_loops_for_products(get_mode("NUMBA"))
    function = pytensor.function([x, w], x.T @ w, mode=mode)
    assert not calls_blas(function)
    np.testing.assert_allclose(function(stored, weights), stored.T @ weights, rtol=1e-12)


@pytest.mark.parametrize("rows", [1000, None])
def test_sum_over_many_or_unknown_rows_stays_with_blas(rows):
    x, w = matrix(rows), vector(rows)
    mode = with_loops_for_products(get_mode("NUMBA"))
    function = pytensor.function([x, w], x.T @ w, mode=mode)
    assert calls_blas(function)
    np.testing.assert_allclose(function(np.ones((1000, COLUMNS)), np.ones(1000)), 1000.0)


def test_product_of_matrices_stays_with_blas():
    function = compiled_product(matrix(), matrix(COLUMNS, ROWS))
    assert calls_blas(function)


def test_mode_given_is_not_changed():
    mode = get_mode("NUMBA")
    with_loops_for_products(mode)
    x, w = matrix(), vector(COLUMNS)
    assert calls_blas(pytensor.function([x, w], x @ w, mode=mode))
