"""Geodesic and stochastic-gradient Monte Carlo for PyMC."""

from pymc_geodesic import datasets, diagnostics, manifolds, models, transforms
from pymc_geodesic.distributions import (
    MatrixVonMisesFisher,
    SphericalAdmixture,
    UniformSphere,
    UniformStiefel,
    VonMisesFisher,
)
from pymc_geodesic.schedules import PolynomialDecay
from pymc_geodesic.steps import GMC, SGGMC, gSGNHT

__all__ = [
    "GMC",
    "SGGMC",
    "MatrixVonMisesFisher",
    "PolynomialDecay",
    "SphericalAdmixture",
    "UniformSphere",
    "UniformStiefel",
    "VonMisesFisher",
    "datasets",
    "diagnostics",
    "gSGNHT",
    "manifolds",
    "models",
    "transforms",
]
