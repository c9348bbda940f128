"""Diagnostics of samplers, topic models and classifiers, and plots in the ArviZ manner."""

from pymc_geodesic.diagnostics.alignment import align_topics
from pymc_geodesic.diagnostics.completion import (
    completion_probabilities,
    document_completion_perplexity,
)
from pymc_geodesic.diagnostics.linear_classifier import LinearClassifier
from pymc_geodesic.diagnostics.perplexity import log_perplexity
from pymc_geodesic.diagnostics.plots import (
    plot_circle_density,
    plot_decision_band,
    plot_label_probability,
    plot_perplexity,
    plot_sphere_points,
    plot_temperature,
    plot_top_words,
)
from pymc_geodesic.diagnostics.spherical_kmeans import spherical_kmeans
from pymc_geodesic.diagnostics.temperature import temperature_summary
from pymc_geodesic.diagnostics.words import top_words

__all__ = [
    "LinearClassifier",
    "align_topics",
    "completion_probabilities",
    "document_completion_perplexity",
    "log_perplexity",
    "plot_circle_density",
    "plot_decision_band",
    "plot_label_probability",
    "plot_perplexity",
    "plot_sphere_points",
    "plot_temperature",
    "plot_top_words",
    "spherical_kmeans",
    "temperature_summary",
    "top_words",
]
