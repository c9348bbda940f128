"""Products of dense matrices and vectors: loops, BLAS, gradients, memory layouts."""

import itertools

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


def test_large_products_use_blas():
    x, w = pt.tensor(shape=(2**19, COLUMNS)), pt.tensor(shape=(COLUMNS,))
    assert calls_blas(compiled(x @ w, x, w))


def test_products_with_unknown_length_are_loops():
    """Rows of unknown number are evaluated in chunks."""
    rng = np.random.default_rng(3)
    x, w = pt.tensor(shape=(None, COLUMNS)), pt.tensor(shape=(COLUMNS,))
    function = compiled(x @ w, x, w)
    assert not calls_blas(function)
    rows, weights = rng.normal(size=(7, COLUMNS)), rng.normal(size=COLUMNS)
    np.testing.assert_allclose(function(rows, weights), rows @ weights, rtol=1e-12)


def test_product_of_matrices_calls_blas():
    x, y = pt.tensor(shape=(ROWS, COLUMNS)), pt.tensor(shape=(COLUMNS, ROWS))
    assert calls_blas(compiled(x @ y, x, y))


def test_given_mode_is_not_changed():
    mode = get_mode("NUMBA")
    with_loops_for_products(mode)
    x, w = pt.tensor(shape=(ROWS, COLUMNS)), pt.tensor(shape=(COLUMNS,))
    nodes = pytensor.function([x, w], x @ w, mode=mode).maker.fgraph.apply_nodes
    assert any(isinstance(node.op, Dot) for node in nodes)


@pytest.fixture(scope="module")
def product():
    """Wrapper that passes arrays unchanged; PyTensor's own makes them C-contiguous."""
    left, right = pt.dmatrix(), pt.dmatrix()
    return pytensor.function([left, right], MatrixMatrix()(left, right), mode="NUMBA").vm.jit_fn


def layouts(rng, rows, columns):
    """Arrays of one shape in several memory layouts."""
    yield rng.normal(size=(rows, columns))
    yield np.asfortranarray(rng.normal(size=(rows, columns)))
    yield rng.normal(size=(rows, 2 * columns))[:, :columns]
    yield rng.normal(size=(2 * rows, columns))[::2]
    yield rng.normal(size=(columns, 2 * rows)).T[:rows]
    yield rng.normal(size=(2 * rows, 3 * columns))[::2, ::3]
    yield rng.normal(size=(rows, columns))[::-1, ::-1]
    yield np.broadcast_to(rng.normal(size=(1, columns)), (rows, columns))
    yield np.broadcast_to(rng.normal(size=(rows, 1)), (rows, columns))


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "inner"), cross([5, 0, 1], [4, 0, 1]))
def test_products_of_any_memory_layout(product, rows, inner):
    rng = np.random.default_rng(1)
    for columns in (0, 1, 7):
        pairs = itertools.product(layouts(rng, rows, inner), layouts(rng, inner, columns))
        for left, right in pairs:
            (result,) = product(left, right)
            assert result.flags.c_contiguous
            np.testing.assert_allclose(result, left @ right, rtol=1e-13, atol=1e-13)


def test_lengths_that_differ_raise(product):
    with pytest.raises(ValueError, match="inner lengths differ"):
        product(np.ones((2, 3)), np.ones((2, 3)))


def test_gradients_of_products_call_blas():
    """PyTensor's product was more than half of the compilation time of a topic model."""
    x, y = pt.dmatrix(), pt.dmatrix()
    graph = pytensor.grad(pt.sum(pt.exp(x @ y)), [x, y])
    function = pytensor.function([x, y], graph, mode=with_loops_for_products(get_mode("NUMBA")))
    operations = [node.op for node in function.maker.fgraph.apply_nodes]
    assert sum(isinstance(each, MatrixMatrix) for each in operations) == 3
    assert not [each for each in operations if "Dot" in str(each) or "Gem" in str(each)]
    rng = np.random.default_rng(2)
    a, b = rng.normal(size=(3, 4)), rng.normal(size=(4, 5))
    found = function(a, b)
    slope = np.exp(a @ b)
    np.testing.assert_allclose(found[0], slope @ b.T, rtol=1e-12)
    np.testing.assert_allclose(found[1], a.T @ slope, rtol=1e-12)
