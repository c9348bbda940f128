"""Distributions on spheres, circles and frames, and hinge losses as pseudo-likelihoods."""

from pymc_geodesic.distributions.angular_gaussian import ESAG, AngularCentralGaussian
from pymc_geodesic.distributions.bingham import Bingham, Watson
from pymc_geodesic.distributions.circular import PeriodicVonMises, WrappedCauchy, circular_link
from pymc_geodesic.distributions.fisher_bingham import FisherBingham, Kent
from pymc_geodesic.distributions.frames import UniformStiefel
from pymc_geodesic.distributions.hinge import Hinge, MulticlassHinge
from pymc_geodesic.distributions.matrix_bingham import MatrixAngularCentralGaussian, MatrixBingham
from pymc_geodesic.distributions.matrix_von_mises_fisher import MatrixVonMisesFisher
from pymc_geodesic.distributions.projected_normal import ProjectedNormal
from pymc_geodesic.distributions.rotationally_symmetric import (
    PowerSpherical,
    SphericalCauchy,
    VonMisesFisher,
)
from pymc_geodesic.distributions.sine_bivariate_von_mises import SineBivariateVonMises
from pymc_geodesic.distributions.spherical_admixture_likelihood import SphericalAdmixture
from pymc_geodesic.distributions.unit_sphere import UniformSphere, rotation_to

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
