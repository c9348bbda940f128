"""Products of sparse rows and vectors, compared with SciPy."""

import numpy as np
import pytest
from scipy import sparse

from pymc_geodesic.runtime.jit import compiled
from pymc_geodesic.runtime.sparse_rows import add_row, dot_row


@compiled(cache=False)
def products(values, columns, starts, vector, factors, dots, sums):
    for i in range(dots.size):
        dots[i] = dot_row(values, columns, starts[i], starts[i + 1], vector)
        add_row(values, columns, starts[i], starts[i + 1], factors[i], sums)


@pytest.mark.parametrize("values_dtype", ["float32", "float64"])
@pytest.mark.parametrize("columns_dtype", ["int32", "uint32"])
def test_products_of_rows_of_all_lengths(values_dtype, columns_dtype):
    """Empty rows, and rows with an odd and an even number of entries."""
    n, rng = 12, np.random.default_rng(0)
    dense = np.tril(rng.normal(size=(n, n)), -1)
    matrix = sparse.csr_array(dense.astype(values_dtype))
    assert np.array_equal(np.diff(matrix.indptr), np.arange(n))
    vector, factors, before = rng.normal(size=n), rng.normal(size=n), rng.normal(size=n)
    dots, sums = np.empty(n), before.copy()
    columns, starts = matrix.indices.astype(columns_dtype), matrix.indptr.astype("int64")
    products(matrix.data, columns, starts, vector, factors, dots, sums)
    exact = matrix.astype(float)
    np.testing.assert_allclose(dots, exact @ vector, rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(sums, before + exact.T @ factors, rtol=1e-13, atol=1e-15)
