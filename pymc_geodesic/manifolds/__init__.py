"""Manifolds with closed-form geodesics, in NumPy and as compiled functions of rows."""

from pymc_geodesic.manifolds.euclidean import Euclidean
from pymc_geodesic.manifolds.flat_simplex import FlatSimplex
from pymc_geodesic.manifolds.half_line import HalfLine
from pymc_geodesic.manifolds.manifold import Manifold
from pymc_geodesic.manifolds.product import Product
from pymc_geodesic.manifolds.simplex import Simplex
from pymc_geodesic.manifolds.sphere import Sphere
from pymc_geodesic.manifolds.stiefel import Stiefel

MANIFOLDS: tuple[type[Manifold], ...] = (
    Euclidean,
    HalfLine,
    Sphere,
    Simplex,
    FlatSimplex,
    Stiefel,
)
"""All manifolds with compiled functions; the tests of the manifolds use this list."""

__all__ = [
    "MANIFOLDS",
    "Euclidean",
    "FlatSimplex",
    "HalfLine",
    "Manifold",
    "Product",
    "Simplex",
    "Sphere",
    "Stiefel",
]
