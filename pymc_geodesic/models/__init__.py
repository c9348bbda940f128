"""The models of the source papers, as functions that return a `pymc.Model`."""

from pymc_geodesic.models.spherical_admixture import spherical_admixture

__all__ = ["spherical_admixture"]
