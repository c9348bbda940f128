r"""Mixture models: clusters of unit vectors, clusters of counts, and mixtures of classifiers.

Problem: divide rows into groups, and know how uncertain the groups and their number are.
`vmf_mixture` returns a `pymc.Model`: a mixture of von Mises–Fisher distributions with a fixed
number of components, or a truncated Dirichlet process. Dirichlet-process mixtures without
truncation are not models of a fixed number of variables; the functions named model + method, and
`infinite_svm`, sample them and return an `xarray.DataTree`.

=================================  ==========================================================
Data                               First function
=================================  ==========================================================
unit vectors, dense or sparse      `vmf_mixture_em` (maximum likelihood), then `vmf_mixture` with
                                   ``pm.sample(step=pg.GMC())``; `spherical_kmeans` as a baseline
rows of counts                     `dp_categorical_gibbs` (exact and fast); `dp_categorical_slice`;
                                   `dp_categorical_stochastic_slice` with minibatches
features and labels                `infinite_svm` (hinge), `dp_multinomial_logit_sgnht` (logit)
=================================  ==========================================================

Then, from the draws: `component_probabilities` of unit vectors, observed or new, whose
``.argmax("component")`` is the cluster; `perplexity` and `log_predictive` of held-out counts;
`predict` and `predict_proba` of the labels of new rows. They return an `xarray.DataArray`, except
`perplexity`, a number. Clusters have no order: `pymc_geodesic.topics.align_topics` gives the
components of all draws one order before means are taken.

References
----------
Banerjee, Dhillon, Ghosh, Sra (2005), Clustering on the unit hypersphere using von Mises–Fisher
distributions. Neal (2000), Markov chain sampling methods for Dirichlet process mixture models.
Jain, Neal (2004), A split-merge Markov chain Monte Carlo procedure. Walker (2007), Sampling the
Dirichlet mixture model with slices. Baker, Fearnhead, Fox, Nemeth (2018), Large-scale stochastic
sampling from the probability simplex, section 4.2. Zhu, Chen, Xing (2011), Infinite SVM. Hu, Zhu,
Zhang (2015), Fast sampling methods for Bayesian max-margin models. Shahbaba, Neal (2009),
Nonlinear models using Dirichlet process mixtures.

Examples
--------
>>> import numpy as np
>>> import pymc_geodesic as pg
>>> points, _ = pg.datasets.make_vmf_mixture(np.eye(3), 50.0, 300, random_seed=1)
>>> fit = pg.mixtures.vmf_mixture_em(points, 3, random_seed=1)
>>> fit.mu.max(axis=1).round(1)
array([1., 1., 1.])
"""

from pymc_geodesic.mixtures.dp_categorical_gibbs import dp_categorical_gibbs
from pymc_geodesic.mixtures.dp_categorical_slice import dp_categorical_slice
from pymc_geodesic.mixtures.dp_categorical_stochastic_slice import dp_categorical_stochastic_slice
from pymc_geodesic.mixtures.expert_predictions import predict, predict_proba
from pymc_geodesic.mixtures.log_predictive import log_predictive, perplexity
from pymc_geodesic.mixtures.mixture_of_experts import dp_multinomial_logit_sgnht, infinite_svm
from pymc_geodesic.mixtures.spherical_clustering import spherical_kmeans, vmf_mixture_em
from pymc_geodesic.mixtures.vmf_mixture import component_probabilities, vmf_mixture
from pymc_geodesic.runtime.iterations import ConvergenceWarning

__all__ = [
    "ConvergenceWarning",
    "component_probabilities",
    "dp_categorical_gibbs",
    "dp_categorical_slice",
    "dp_categorical_stochastic_slice",
    "dp_multinomial_logit_sgnht",
    "infinite_svm",
    "log_predictive",
    "perplexity",
    "predict",
    "predict_proba",
    "spherical_kmeans",
    "vmf_mixture",
    "vmf_mixture_em",
]
