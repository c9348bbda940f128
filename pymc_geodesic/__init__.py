"""Geodesic and stochastic-gradient Monte Carlo for PyMC."""

from pymc_geodesic import manifolds, transforms
from pymc_geodesic.schedules import PolynomialDecay
from pymc_geodesic.steps import GMC, SGGMC, gSGNHT

__all__ = ["GMC", "SGGMC", "PolynomialDecay", "gSGNHT", "manifolds", "transforms"]
