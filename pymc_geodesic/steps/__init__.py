"""Step methods for `pymc.sample`: thin adaptors between PyMC points and kernels."""

from pymc_geodesic.steps.gmc import GMC
from pymc_geodesic.steps.gsgnht import gSGNHT
from pymc_geodesic.steps.sggmc import SGGMC

__all__ = ["GMC", "SGGMC", "gSGNHT"]
