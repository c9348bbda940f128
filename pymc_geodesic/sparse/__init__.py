"""Sparse design matrices: data container, and products in time proportional to the non-zeros."""

from pymc_geodesic.ops.sparse_dot import SparseDot, SparseTransposeDot, in_order
from pymc_geodesic.sparse.count_matrices import admixture_log_likelihood
from pymc_geodesic.sparse.data import (
    SparseContainers,
    SparseData,
    canonical_rows,
    get_containers,
    sparse_containers,
)

__all__ = [
    "SparseContainers",
    "SparseData",
    "SparseDot",
    "SparseTransposeDot",
    "admixture_log_likelihood",
    "canonical_rows",
    "get_containers",
    "in_order",
    "sparse_containers",
]
