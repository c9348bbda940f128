r"""Bayesian support vector machines: linear classifiers with a hinge pseudo-likelihood.

Problem: classify rows by a linear boundary, and know how uncertain the boundary and the labels of
new rows are. `linear_svm` returns a `pymc.Model` for two or more classes and dense or sparse
features. Its hinge loss has a kink, at which the step methods use a subgradient.

1. `linear_svm`, sampled by ``pm.sample(step=pg.SubgradientHMC())``, or for many rows by
   ``pm.sample(step=pg.SSGNHT(batch_size=100))``.
2. `predict`, `predict_proba` and `decision_function` of new rows, as in scikit-learn, with the
   draws as the first argument; they return an `xarray.DataArray`.
3. `plot_label_probability`: calibration of the probabilities; `plot_decision_band`: uncertainty
   of the decision boundary of two features.

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
>>> pg.svm.predict(idata, [[-3.0], [3.0]]).values
array([-1,  1])
"""

from pymc_geodesic.svm.linear_svm import linear_svm
from pymc_geodesic.svm.plots import plot_decision_band, plot_label_probability
from pymc_geodesic.svm.predictions import decision_function, predict, predict_proba

__all__ = [
    "decision_function",
    "linear_svm",
    "plot_decision_band",
    "plot_label_probability",
    "predict",
    "predict_proba",
]
