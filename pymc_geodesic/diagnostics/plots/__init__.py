"""Plots in the ArviZ manner: draws in, matplotlib axes out."""

from pymc_geodesic.diagnostics.plots.circle import plot_circle_density
from pymc_geodesic.diagnostics.plots.decision_band import plot_decision_band
from pymc_geodesic.diagnostics.plots.label_probability import plot_label_probability
from pymc_geodesic.diagnostics.plots.perplexity import plot_perplexity
from pymc_geodesic.diagnostics.plots.sphere import plot_sphere_points
from pymc_geodesic.diagnostics.plots.temperature import plot_temperature
from pymc_geodesic.diagnostics.plots.words import plot_top_words

__all__ = [
    "plot_circle_density",
    "plot_decision_band",
    "plot_label_probability",
    "plot_perplexity",
    "plot_sphere_points",
    "plot_temperature",
    "plot_top_words",
]
