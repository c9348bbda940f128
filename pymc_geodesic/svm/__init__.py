r"""Bayesian support vector machines: linear classifiers with a hinge pseudo-likelihood.

`linear_svm` returns a `pymc.Model` for two or more classes and dense or sparse features. Its hinge
loss has a kink, at which the step methods use a subgradient.

1. `linear_svm`, sampled by ``pm.sample(step=pg.SubgradientHMC())``, or for many rows by
   ``pm.sample(step=pg.SSGNHT(batch_size=100))``.
2. `LinearClassifier`: predictions from the draws with the interface of scikit-learn, ``predict``,
   ``predict_proba``, ``decision_function``, ``score``, ``coef_``.
3. `plot_decision_band`: uncertainty of the decision boundary in two dimensions;
   `plot_label_probability`: calibration of the probabilities.

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
