"""Transforms between manifolds and the unconstrained coordinates that NUTS moves in."""

from pymc_geodesic.transforms.unit_vector import unit_vector

__all__ = ["unit_vector"]
