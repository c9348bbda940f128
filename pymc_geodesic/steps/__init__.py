"""Step methods for `pymc.sample`: thin adaptors between PyMC points and kernels."""

from pymc_geodesic.steps.gmc import GMC
from pymc_geodesic.steps.gsgnht import gSGNHT
from pymc_geodesic.steps.scir import SCIR
from pymc_geodesic.steps.sggmc import SGGMC
from pymc_geodesic.steps.sgrld import SGRLD

__all__ = ["GMC", "SCIR", "SGGMC", "SGRLD", "gSGNHT"]
