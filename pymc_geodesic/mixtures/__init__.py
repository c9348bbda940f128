r"""Mixtures: clusters of directions, of categorical rows, and of classifiers.

`vmf_mixture` returns a `pymc.Model` of von Mises–Fisher clusters of unit vectors, with a fixed
number of components or a Dirichlet process; `vmf_mixture_em` and `spherical_kmeans` fit the same
clusters by maximum likelihood. Rows of counts are clustered by `dp_categorical_gibbs`,
`dp_categorical_slice` and, with minibatches, `dp_categorical_mixture`; classifiers that differ
between regions of the features by `infinite_svm` and `dp_multinomial_logit`. These return draws.

1. `vmf_mixture_em`, `dp_categorical_gibbs` or `infinite_svm`, according to the data.
2. `component_probabilities`: clusters of points; `mixture_perplexity` and
   `mixture_log_predictive`: rows that were held out; `expert_votes` and `expert_probabilities`:
   labels of new rows.

References
----------
Banerjee, Dhillon, Ghosh, Sra (2005), Clustering on the unit hypersphere using von Mises–Fisher
distributions. Neal (2000), Markov chain sampling methods for Dirichlet process mixture models;
Jain, Neal (2004), A split-merge Markov chain Monte Carlo procedure; Walker (2007), Sampling the
Dirichlet mixture model with slices. Zhu, Chen, Xing (2011), Infinite SVM; Shahbaba, Neal (2009),
Nonlinear models using Dirichlet process mixtures. Baker, Fearnhead, Fox, Nemeth (2018),
Large-scale stochastic sampling from the probability simplex, section 4.2.

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
