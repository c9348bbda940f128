"""Support vector machines."""

from pymc_geodesic.svm.linear_classifier import LinearClassifier
from pymc_geodesic.svm.linear_svm import linear_svm
from pymc_geodesic.svm.plots import plot_decision_band, plot_label_probability

__all__ = [
    "LinearClassifier",
    "linear_svm",
    "plot_decision_band",
    "plot_label_probability",
]
