"""The models of the source papers, as functions that return a `pymc.Model`."""

from pymc_geodesic.models.dp_categorical_gibbs import dp_categorical_gibbs
from pymc_geodesic.models.dp_categorical_mixture import dp_categorical_mixture
from pymc_geodesic.models.dp_categorical_slice import dp_categorical_slice
from pymc_geodesic.models.dp_multinomial_logit import dp_multinomial_logit
from pymc_geodesic.models.infinite_svm import infinite_svm
from pymc_geodesic.models.lda import lda
from pymc_geodesic.models.lda_gibbs import lda_gibbs
from pymc_geodesic.models.linear_svm import linear_svm
from pymc_geodesic.models.medlda import medlda
from pymc_geodesic.models.medlda_gibbs import medlda_gibbs
from pymc_geodesic.models.medlda_passive_aggressive import medlda_passive_aggressive
from pymc_geodesic.models.medlda_ssgrld import medlda_ssgrld
from pymc_geodesic.models.spherical_admixture import spherical_admixture
from pymc_geodesic.models.spherical_admixture_vi import spherical_admixture_vi
from pymc_geodesic.models.vmf_mixture import vmf_mixture
from pymc_geodesic.models.vmf_mixture_em import vmf_mixture_em
from pymc_geodesic.runtime.convergence import ConvergenceWarning

__all__ = [
    "ConvergenceWarning",
    "dp_categorical_gibbs",
    "dp_categorical_mixture",
    "dp_categorical_slice",
    "dp_multinomial_logit",
    "infinite_svm",
    "lda",
    "lda_gibbs",
    "linear_svm",
    "medlda",
    "medlda_gibbs",
    "medlda_passive_aggressive",
    "medlda_ssgrld",
    "spherical_admixture",
    "spherical_admixture_vi",
    "vmf_mixture",
    "vmf_mixture_em",
]
