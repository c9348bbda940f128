"""Sparse design matrices: a data container, and products whose cost follows the non-zeros."""

from pymc_geodesic.ops.sparse_dot import SparseDot, SparseTransposeDot, in_order
from pymc_geodesic.sparse.admixture import admixture_log_likelihood
from pymc_geodesic.sparse.canonical import canonical_rows
from pymc_geodesic.sparse.containers import SparseContainers, containers_of, sparse_containers
from pymc_geodesic.sparse.data import SparseData

__all__ = [
    "SparseContainers",
    "SparseData",
    "SparseDot",
    "SparseTransposeDot",
    "admixture_log_likelihood",
    "canonical_rows",
    "containers_of",
    "in_order",
    "sparse_containers",
]
