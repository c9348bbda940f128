"""Distributions on spheres and orthonormal frames, and hinge losses as pseudo-likelihoods."""

from pymc_geodesic.distributions.hinge import Hinge
from pymc_geodesic.distributions.matrix_von_mises_fisher import MatrixVonMisesFisher
from pymc_geodesic.distributions.multiclass_hinge import MulticlassHinge
from pymc_geodesic.distributions.spherical_admixture import SphericalAdmixture
from pymc_geodesic.distributions.stiefel import UniformStiefel
from pymc_geodesic.distributions.uniform_sphere import UniformSphere
from pymc_geodesic.distributions.von_mises_fisher import VonMisesFisher

__all__ = [
    "Hinge",
    "MatrixVonMisesFisher",
    "MulticlassHinge",
    "SphericalAdmixture",
    "UniformSphere",
    "UniformStiefel",
    "VonMisesFisher",
]
