r"""Bayesian support vector machines: linear classifiers with a hinge pseudo-likelihood.

`linear_svm` returns a `pymc.Model` for two or more classes, of dense or sparse features, which
`SSGNHT`, `SGLD` or `SubgradientHMC` sample with minibatches of rows; a hinge has no gradient at
its kink, and these step methods take a subgradient.

1. `linear_svm`, and ``pm.sample(step=pg.SSGNHT(batch_size=100))``.
2. `LinearClassifier` of the draws: ``predict``, ``predict_proba``, scores and coefficients.
3. `plot_decision_band`: where the classifier is sure; `plot_label_probability`: whether its
   probabilities are calibrated.

References
----------
Polson, Scott (2011), Data augmentation for support vector machines; Hu, Zhu, Zhang (2015), Fast
sampling methods for Bayesian max-margin models.

Examples
--------
>>> import pymc as pm
>>> import pymc_geodesic as pg
>>> with pg.svm.linear_svm([[-2.0], [-1.0], [1.0], [2.0]], [-1, -1, 1, 1]):
...     step = pg.SubgradientHMC()
...     idata = pm.sample(100, tune=100, chains=1, step=step, random_seed=1, progressbar=False)
>>> pg.svm.LinearClassifier(idata).predict([[-3.0], [3.0]])
array([-1,  1])
"""

from pymc_geodesic.svm.linear_classifier import LinearClassifier
from pymc_geodesic.svm.linear_svm import linear_svm
from pymc_geodesic.svm.plots import plot_decision_band, plot_label_probability

__all__ = [
    "LinearClassifier",
    "linear_svm",
    "plot_decision_band",
    "plot_label_probability",
]
