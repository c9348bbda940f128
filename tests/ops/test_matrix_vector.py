import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import get_mode
from pytensor.tensor.math import Dot

from pymc_geodesic.ops.dense_products import MatrixMatrix, with_loops_for_products
from tests.grids import cross

ROWS, COLUMNS = 7, 3
TOLERANCE = {"float32": 1e-5, "float64": 1e-12}


def compiled(graph, *inputs):
    return pytensor.function(inputs, graph, mode=with_loops_for_products(get_mode("NUMBA")))


def calls_blas(function) -> bool:
    nodes = function.maker.fgraph.apply_nodes
    assert not any(isinstance(n.op, Dot) and n.inputs[0].type.dtype == "float64" for n in nodes)
    return any(isinstance(node.op, Dot | MatrixMatrix) for node in nodes)


@pytest.mark.parametrize(
    ("dtype", "left", "right"),
    cross(["float64", "float32"], [
        ((ROWS, COLUMNS), (COLUMNS,)),
        ((ROWS,), (ROWS, COLUMNS)),
        ((8,), (8, COLUMNS)),
        ((2,), (2, COLUMNS)),
        ((COLUMNS,), (COLUMNS,)),
        ((1, COLUMNS), (COLUMNS, ROWS)),
        ((ROWS, COLUMNS), (COLUMNS, 1)),
    ]),
    ids=str,
)  # fmt: skip
def test_product_with_a_vector_is_a_loop_with_the_same_value(left, right, dtype):
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=left).astype(dtype), rng.normal(size=right).astype(dtype)
    x, y = pt.tensor(shape=left, dtype=dtype), pt.tensor(shape=right, dtype=dtype)
    function = compiled(x @ y, x, y)
    assert not calls_blas(function)
    result = function(a, b)
    assert result.dtype == dtype
    np.testing.assert_allclose(result, a @ b, rtol=TOLERANCE[dtype])


def test_gradient_of_a_regression_calls_no_blas():
    rng = np.random.default_rng(2)
    rows, weights = rng.normal(size=(ROWS, COLUMNS)), rng.normal(size=COLUMNS)
    x, w = pt.tensor(shape=rows.shape), pt.tensor(shape=weights.shape)
    function = compiled(pytensor.grad(pt.sum(pt.exp(x @ w)), w), x, w)
    assert not calls_blas(function)
    expected = rows.T @ np.exp(rows @ weights)
    np.testing.assert_allclose(function(rows, weights), expected, rtol=1e-12)


def test_large_products_stay_with_blas():
    x, w = pt.tensor(shape=(2**19, COLUMNS)), pt.tensor(shape=(COLUMNS,))
    assert calls_blas(compiled(x @ w, x, w))


def test_products_of_unknown_rows_are_loops():
    """Rows that are left open are looked at in chunks."""
    rng = np.random.default_rng(3)
    x, w = pt.tensor(shape=(None, COLUMNS)), pt.tensor(shape=(COLUMNS,))
    function = compiled(x @ w, x, w)
    assert not calls_blas(function)
    rows, weights = rng.normal(size=(7, COLUMNS)), rng.normal(size=COLUMNS)
    np.testing.assert_allclose(function(rows, weights), rows @ weights, rtol=1e-12)


def test_product_of_matrices_calls_blas():
    x, y = pt.tensor(shape=(ROWS, COLUMNS)), pt.tensor(shape=(COLUMNS, ROWS))
    assert calls_blas(compiled(x @ y, x, y))


def test_mode_given_is_not_changed():
    mode = get_mode("NUMBA")
    with_loops_for_products(mode)
    x, w = pt.tensor(shape=(ROWS, COLUMNS)), pt.tensor(shape=(COLUMNS,))
    nodes = pytensor.function([x, w], x @ w, mode=mode).maker.fgraph.apply_nodes
    assert any(isinstance(node.op, Dot) for node in nodes)
