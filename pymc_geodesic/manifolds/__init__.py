"""Manifolds with closed-form geodesics, each in NumPy and as compiled row functions."""

from pymc_geodesic.manifolds.euclidean import Euclidean
from pymc_geodesic.manifolds.manifold import Manifold
from pymc_geodesic.manifolds.product import Product
from pymc_geodesic.manifolds.sphere import Sphere

MANIFOLDS: tuple[type[Manifold], ...] = (Euclidean, Sphere)
"""Every manifold with its own compiled functions; the law tests run over this list."""

__all__ = ["MANIFOLDS", "Euclidean", "Manifold", "Product", "Sphere"]
