"""Plots in the ArviZ manner, on matplotlib, plotly and bokeh, and some on matplotlib axes."""

from pymc_geodesic.diagnostics.plots.circle import plot_circle_density
from pymc_geodesic.diagnostics.plots.circular_density import plot_circular_density
from pymc_geodesic.diagnostics.plots.decision_band import plot_decision_band
from pymc_geodesic.diagnostics.plots.direction_trace import plot_direction_trace
from pymc_geodesic.diagnostics.plots.directional_ppc import plot_directional_ppc
from pymc_geodesic.diagnostics.plots.globe import plot_sphere
from pymc_geodesic.diagnostics.plots.label_probability import plot_label_probability
from pymc_geodesic.diagnostics.plots.perplexity import plot_perplexity
from pymc_geodesic.diagnostics.plots.rose import plot_rose
from pymc_geodesic.diagnostics.plots.sphere import plot_sphere_points
from pymc_geodesic.diagnostics.plots.temperature import plot_temperature
from pymc_geodesic.diagnostics.plots.ternary import plot_ternary
from pymc_geodesic.diagnostics.plots.warmup import plot_warmup
from pymc_geodesic.diagnostics.plots.words import plot_top_words

__all__ = [
    "plot_circle_density",
    "plot_circular_density",
    "plot_decision_band",
    "plot_direction_trace",
    "plot_directional_ppc",
    "plot_label_probability",
    "plot_perplexity",
    "plot_rose",
    "plot_sphere",
    "plot_sphere_points",
    "plot_temperature",
    "plot_ternary",
    "plot_top_words",
    "plot_warmup",
]
