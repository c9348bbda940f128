"""Transforms between manifolds and the unconstrained coordinates that NUTS moves in."""

from pymc_geodesic.transforms.gram_schmidt import stiefel
from pymc_geodesic.transforms.square_root_simplex import square_root_simplex
from pymc_geodesic.transforms.unit_vector import unit_vector

__all__ = ["square_root_simplex", "stiefel", "unit_vector"]
