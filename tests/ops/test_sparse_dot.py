"""Sparse products and their gradients against dense ones, on every backend."""

import pickle
from itertools import product

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.gradient import NullTypeGradError, verify_grad
from scipy import sparse

from pymc_geodesic.sparse import SparseDot, SparseTransposeDot, in_order
from tests.grids import cross

N, D = 7, 11
MODES = ["NUMBA", "CVM", "FAST_COMPILE"]


@pytest.fixture(scope="module")
def matrix():
    rng = np.random.default_rng(1)
    rows = sparse.random_array((N, D), density=0.3, format="csr", rng=rng)
    rows.data[:] = rng.normal(size=rows.nnz)
    empty = sparse.csr_array((1, D))
    return sparse.csr_array(sparse.vstack([rows, empty]))


def parts(matrix, chosen=slice(None)):
    bounds = np.column_stack([matrix.indptr[:-1], matrix.indptr[1:]]).astype(np.int64)
    return matrix.data, matrix.indices.astype(np.int32), bounds[chosen]


CHOICES = {
    "all": slice(None),
    "window": slice(2, 5),
    "any order, repeated": [4, 7, 0, 4],
    "none": slice(0, 0),
}


@pytest.mark.parametrize(
    ("mode", "chosen", "columns"), cross(MODES, product(CHOICES, [(3,), ()])), ids=str
)
def test_products_are_those_of_the_dense_matrix(matrix, mode, chosen, columns):
    rng = np.random.default_rng(2)
    chosen = CHOICES[chosen]
    dense = matrix.toarray()[chosen]
    weights, residuals = rng.normal(size=(D, *columns)), rng.normal(size=(len(dense), *columns))
    values, indices, rows = map(pt.as_tensor, parts(matrix, chosen))
    w = pt.tensor("w", shape=(None,) * weights.ndim)
    r = pt.tensor("r", shape=(None,) * weights.ndim)
    outputs = [
        SparseDot(D)(values, indices, rows, w),
        SparseTransposeDot(D)(values, indices, rows, r),
        SparseTransposeDot(D, squared=True)(values, indices, rows, r),
    ]
    function = pytensor.function([w, r], outputs, mode=mode)
    expected = [dense @ weights, dense.T @ residuals, (dense**2).T @ residuals]
    for result, wanted in zip(function(weights, residuals), expected, strict=True):
        assert result.shape == wanted.shape
        np.testing.assert_allclose(result, wanted, atol=1e-13)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_single_precision_stays_single(matrix, dtype):
    values, indices, rows = parts(matrix.astype(np.float32))
    weights = np.arange(D).astype(dtype)
    product = SparseDot(D)(values, indices, rows, weights)
    for mode in ("NUMBA", "FAST_COMPILE"):
        result = product.eval(mode=mode)
        assert result.dtype == dtype
        np.testing.assert_allclose(result, matrix @ weights, rtol=1e-5)


@pytest.mark.parametrize("columns", [(), (2,)], ids=["vector", "matrix"])
@pytest.mark.parametrize("op", [SparseDot(D), SparseTransposeDot(D)], ids=["dot", "transposed"])
def test_gradient(matrix, op, columns):
    values, indices, rows = parts(matrix)
    length = D if isinstance(op, SparseDot) else N + 1
    rng = np.random.default_rng(3)
    verify_grad(
        lambda other: op(values, indices, rows, other),
        [rng.normal(size=(length, *columns))],
        rng=rng,
        mode="FAST_COMPILE",
    )


def test_values_are_not_differentiated(matrix):
    _, indices, rows = parts(matrix)
    v = pt.vector("v")
    with pytest.raises(NullTypeGradError, match="The non-zeros are data"):
        pytensor.grad(pt.sum(SparseDot(D)(v, indices, rows, np.ones(D))), v)


def test_wrong_lengths_raise(matrix):
    values, indices, rows = parts(matrix)
    with pytest.raises(ValueError, match=r"length 10.*needs 11: it has 11 columns and 8 rows"):
        SparseDot(D)(values, indices, rows, np.ones(D - 1))
    with pytest.raises(ValueError, match="3 axes"):
        SparseDot(D)(values, indices, rows, np.ones((D, 1, 1)))
    w = pt.vector("w")
    for mode in MODES:
        function = pytensor.function([w], SparseDot(D)(values, indices, rows, w), mode=mode)
        with pytest.raises(ValueError, match="the weights"):
            function(np.ones(D - 1))
        transposed = SparseTransposeDot(D)(values, indices, rows, w)
        function = pytensor.function([w], transposed, mode=mode)
        with pytest.raises(ValueError, match=r"residual"):
            function(np.ones(D))


def test_vectorized_over_rows(matrix):
    """Vectorized products, as in gradients of single rows."""
    values, indices, rows = parts(matrix)
    row = pt.tensor("row", dtype="int64", shape=(1, 2))
    w = np.random.default_rng(4).normal(size=D)
    single = SparseDot(D)(values, indices, row, w)
    batch = pytensor.graph.replace.vectorize_graph(single, {row: pt.as_tensor(rows[:, None])})
    np.testing.assert_allclose(batch.eval()[:, 0], matrix @ w, atol=1e-13)


def test_pickled_product(matrix):
    op = pickle.loads(pickle.dumps(SparseTransposeDot(D, squared=True)))
    assert op == SparseTransposeDot(D, squared=True)
    assert op != SparseTransposeDot(D)


def test_rows_in_order_are_the_same_rows_closer_together(matrix):
    chosen = np.array([5, 0, 7, 3, 1, 2, 6, 4, 5, 0])
    values, indices, rows = parts(matrix, chosen)
    moved = in_order(values, indices, rows, 8)
    np.testing.assert_array_equal(moved[2][1:8, 0], moved[2][:7, 1])
    np.testing.assert_array_equal(moved[2][8:], moved[2][:2])
    identity = np.eye(D)
    before = SparseDot(D)(values, indices, rows, identity).eval(mode="FAST_COMPILE")
    after = SparseDot(D)(*moved, identity).eval(mode="FAST_COMPILE")
    np.testing.assert_array_equal(after, before)
    np.testing.assert_array_equal(after, matrix.toarray()[chosen])
