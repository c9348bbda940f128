"""Mixtures."""

from pymc_geodesic.mixtures.dp_categorical_gibbs import dp_categorical_gibbs
from pymc_geodesic.mixtures.dp_categorical_mixture import dp_categorical_mixture
from pymc_geodesic.mixtures.dp_categorical_slice import dp_categorical_slice
from pymc_geodesic.mixtures.dp_multinomial_logit import dp_multinomial_logit
from pymc_geodesic.mixtures.expert_votes import expert_probabilities, expert_votes
from pymc_geodesic.mixtures.infinite_svm import infinite_svm
from pymc_geodesic.mixtures.mixture_predictive import mixture_log_predictive, mixture_perplexity
from pymc_geodesic.mixtures.spherical_kmeans import spherical_kmeans
from pymc_geodesic.mixtures.vmf_mixture import component_probabilities, vmf_mixture
from pymc_geodesic.mixtures.vmf_mixture_em import vmf_mixture_em
from pymc_geodesic.runtime.convergence import ConvergenceWarning

__all__ = [
    "ConvergenceWarning",
    "component_probabilities",
    "dp_categorical_gibbs",
    "dp_categorical_mixture",
    "dp_categorical_slice",
    "dp_multinomial_logit",
    "expert_probabilities",
    "expert_votes",
    "infinite_svm",
    "mixture_log_predictive",
    "mixture_perplexity",
    "spherical_kmeans",
    "vmf_mixture",
    "vmf_mixture_em",
]
