"""Distributions on spheres, circles and frames, and hinge losses as pseudo-likelihoods."""

from pymc_geodesic.distributions.angular import circular_link
from pymc_geodesic.distributions.angular_central_gaussian import AngularCentralGaussian
from pymc_geodesic.distributions.bingham import Bingham
from pymc_geodesic.distributions.esag import ESAG
from pymc_geodesic.distributions.fisher_bingham import FisherBingham
from pymc_geodesic.distributions.hinge import Hinge
from pymc_geodesic.distributions.kent import Kent
from pymc_geodesic.distributions.matrix_angular_central_gaussian import (
    MatrixAngularCentralGaussian,
)
from pymc_geodesic.distributions.matrix_bingham import MatrixBingham
from pymc_geodesic.distributions.matrix_von_mises_fisher import MatrixVonMisesFisher
from pymc_geodesic.distributions.multiclass_hinge import MulticlassHinge
from pymc_geodesic.distributions.periodic_von_mises import PeriodicVonMises
from pymc_geodesic.distributions.power_spherical import PowerSpherical
from pymc_geodesic.distributions.projected_normal import ProjectedNormal
from pymc_geodesic.distributions.rotations import rotation_to
from pymc_geodesic.distributions.sine_bivariate_von_mises import SineBivariateVonMises
from pymc_geodesic.distributions.spherical_admixture import SphericalAdmixture
from pymc_geodesic.distributions.spherical_cauchy import SphericalCauchy
from pymc_geodesic.distributions.stiefel import UniformStiefel
from pymc_geodesic.distributions.uniform_sphere import UniformSphere
from pymc_geodesic.distributions.von_mises_fisher import VonMisesFisher
from pymc_geodesic.distributions.watson import Watson
from pymc_geodesic.distributions.wrapped_cauchy import WrappedCauchy

__all__ = [
    "ESAG",
    "AngularCentralGaussian",
    "Bingham",
    "FisherBingham",
    "Hinge",
    "Kent",
    "MatrixAngularCentralGaussian",
    "MatrixBingham",
    "MatrixVonMisesFisher",
    "MulticlassHinge",
    "PeriodicVonMises",
    "PowerSpherical",
    "ProjectedNormal",
    "SineBivariateVonMises",
    "SphericalAdmixture",
    "SphericalCauchy",
    "UniformSphere",
    "UniformStiefel",
    "VonMisesFisher",
    "Watson",
    "WrappedCauchy",
    "circular_link",
    "rotation_to",
]
