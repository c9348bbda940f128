"""The models of the source papers, as functions that return a `pymc.Model`."""

from pymc_geodesic.models.lda import lda
from pymc_geodesic.models.lda_gibbs import lda_gibbs
from pymc_geodesic.models.linear_svm import linear_svm
from pymc_geodesic.models.spherical_admixture import spherical_admixture

__all__ = ["lda", "lda_gibbs", "linear_svm", "spherical_admixture"]
