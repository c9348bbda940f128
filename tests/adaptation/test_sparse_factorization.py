"""Sparse Cholesky factors of the precision matrix of group effects."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import sparse

from pymc_geodesic.adaptation.sparse_factorization import Group, triangular_factor


@pytest.mark.parametrize(
    ("sizes", "n_rows", "is_nested"),
    [((30, 12), 40, True), ((30, 12), 120, False), ((300, 60), 900, False)],
)
def test_factor_of_crossed_and_nested_groups(sizes, n_rows, is_nested):
    """L Lᵀ is the precision matrix, in the order of elimination.

    The products of couplings are sparse, dense, and sparse in a dense matrix.
    """
    rng = np.random.default_rng(n_rows)
    first, second = (rng.integers(0, n, n_rows) for n in sizes)
    if is_nested:
        second = first % sizes[1]
    n_effects = sum(sizes)
    size = n_effects + 3
    rows = sparse.lil_matrix((n_rows, size))
    rows[np.arange(n_rows), first] = 1.0
    rows[np.arange(n_rows), sizes[0] + second] = 1.0
    rows[:, n_effects:] = rng.normal(size=(n_rows, 3))
    prior = np.concatenate([np.full(sizes[0], 2.0), np.full(sizes[1], 0.5), np.zeros(3)])
    matrix = (rows.T @ rows + sparse.diags(prior + 1e-3 * (prior == 0.0))).tocsr()
    groups = [
        Group(np.arange(sizes[0]), frozenset()),
        Group(np.arange(sizes[0], n_effects), frozenset()),
    ]
    factor = triangular_factor(matrix, groups, np.arange(n_effects, size), prior)
    upper = np.eye(size)
    for i in range(factor.n_sparse):
        part = slice(factor.starts[i], factor.starts[i + 1])
        upper[i, factor.columns[part]] = factor.couplings[part]
    row, column = np.triu_indices(size - factor.n_sparse, 1)
    upper[factor.n_sparse + row, factor.n_sparse + column] = factor.dense
    found = upper.T @ np.diag(factor.precision) @ upper
    expected = matrix.toarray()[np.ix_(factor.order, factor.order)]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)  # in single precision
    assert factor.n_sparse == (n_effects if is_nested else sizes[0])


def test_factor_of_effects_that_sum_to_zero():
    """L Lᵀ is Eᵀ Q E, and a sparse row has the couplings with the entries."""
    n, n_sparse = 5, 8
    rng = np.random.default_rng(0)
    root = rng.normal(size=(14, 14))  # 8 sparse, 4 coordinates, the intercept, the last entry
    root[:, :n_sparse] = np.eye(14, n_sparse)
    matrix = root.T @ root + np.eye(14)
    groups = [
        Group(np.arange(n_sparse), frozenset()),
        Group(np.arange(n_sparse, 12), frozenset(), last=13),
    ]
    factor = triangular_factor(sparse.csr_matrix(matrix), groups, np.array([12]), np.zeros(13))
    expand = np.zeros((14, 13))
    expand[:13, :13] = np.eye(13)
    transform = pm.distributions.transforms.ZeroSumTransform([-1])
    entries = np.append(np.arange(n_sparse, 12), 13)
    expand[entries, n_sparse:12] = transform.backward(pt.constant(np.eye(n - 1))).eval().T
    upper = np.eye(13)
    couplings = np.zeros((n_sparse, 14))
    for i in range(n_sparse):
        part = slice(factor.starts[i], factor.starts[i + 1])
        couplings[i, factor.columns[part]] = factor.couplings[part]
    upper[:n_sparse] += couplings @ expand
    row, column = np.triu_indices(13 - n_sparse, 1)
    upper[n_sparse + row, n_sparse + column] = factor.dense
    found = upper.T @ np.diag(factor.precision) @ upper
    np.testing.assert_array_equal(factor.order, np.arange(13))
    np.testing.assert_allclose(found, expand.T @ matrix @ expand, rtol=1e-5, atol=1e-5)
