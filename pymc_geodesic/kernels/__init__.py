"""Compiled Markov transitions and their numerical parts, independent of PyMC."""

from pymc_geodesic.kernels.gmc import gmc
from pymc_geodesic.kernels.gsgnht import gsgnht
from pymc_geodesic.kernels.probe import probe, probe_minibatches
from pymc_geodesic.kernels.sggmc import sggmc
from pymc_geodesic.kernels.sgld import sgld
from pymc_geodesic.kernels.ssgnht import ssgnht

__all__ = [
    "gmc",
    "gsgnht",
    "probe",
    "probe_minibatches",
    "sggmc",
    "sgld",
    "ssgnht",
]
