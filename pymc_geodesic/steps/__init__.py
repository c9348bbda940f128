"""Step methods for `pymc.sample`."""

from pymc_geodesic.steps.gmc import GMC
from pymc_geodesic.steps.gsgnht import gSGNHT
from pymc_geodesic.steps.scir import SCIR
from pymc_geodesic.steps.sggmc import SGGMC
from pymc_geodesic.steps.sgld import SGLD, SSGLD
from pymc_geodesic.steps.sgrld import SGRLD
from pymc_geodesic.steps.ssgnht import SSGNHT
from pymc_geodesic.steps.subgradient_hmc import SubgradientHMC

__all__ = ["GMC", "SCIR", "SGGMC", "SGLD", "SGRLD", "SSGLD", "SSGNHT", "SubgradientHMC", "gSGNHT"]
