"""Diagnostics of samplers, topic models and classifiers, and plots in the ArviZ manner."""

from pymc_geodesic.diagnostics.alignment import align_topics
from pymc_geodesic.diagnostics.completion import (
    completion_probabilities,
    document_completion_perplexity,
)
from pymc_geodesic.diagnostics.directions.centre import mean_direction
from pymc_geodesic.diagnostics.directions.coordinates import (
    from_declination_inclination,
    from_lonlat,
    to_declination_inclination,
    to_lonlat,
)
from pymc_geodesic.diagnostics.directions.density import directional_density
from pymc_geodesic.diagnostics.directions.kinds import direction_variables
from pymc_geodesic.diagnostics.directions.regions import (
    credible_cap,
    directional_hdi,
    directional_hdr,
)
from pymc_geodesic.diagnostics.directions.simplex import simplex_summary
from pymc_geodesic.diagnostics.directions.summary import directional_summary
from pymc_geodesic.diagnostics.expert_votes import expert_probabilities, expert_votes
from pymc_geodesic.diagnostics.halving import StepHalving, step_halving
from pymc_geodesic.diagnostics.linear_classifier import LinearClassifier
from pymc_geodesic.diagnostics.max_margin_topics import (
    label_scores,
    predict_labels,
    topics_by_class,
)
from pymc_geodesic.diagnostics.mixture_labels import component_probabilities
from pymc_geodesic.diagnostics.mixture_predictive import (
    mixture_log_predictive,
    mixture_perplexity,
)
from pymc_geodesic.diagnostics.perplexity import log_perplexity
from pymc_geodesic.diagnostics.plots import (
    plot_circle_density,
    plot_circular_density,
    plot_decision_band,
    plot_direction_trace,
    plot_directional_ppc,
    plot_label_probability,
    plot_perplexity,
    plot_rose,
    plot_sphere,
    plot_sphere_points,
    plot_temperature,
    plot_ternary,
    plot_top_words,
    plot_warmup,
)
from pymc_geodesic.diagnostics.spherical_kmeans import spherical_kmeans
from pymc_geodesic.diagnostics.stein.discrepancy import KernelSteinDiscrepancy, ksd
from pymc_geodesic.diagnostics.stein.goodness_of_fit import stein_test
from pymc_geodesic.diagnostics.stein.thinning import stein_thinning
from pymc_geodesic.diagnostics.temperature import temperature_summary
from pymc_geodesic.diagnostics.uniformity import DirectionalTestResult, uniformity_test
from pymc_geodesic.diagnostics.vmf_residuals import VonMisesFisherResidualTest, vmf_residual_test
from pymc_geodesic.diagnostics.words import top_words

__all__ = [
    "DirectionalTestResult",
    "KernelSteinDiscrepancy",
    "LinearClassifier",
    "StepHalving",
    "VonMisesFisherResidualTest",
    "align_topics",
    "completion_probabilities",
    "component_probabilities",
    "credible_cap",
    "direction_variables",
    "directional_density",
    "directional_hdi",
    "directional_hdr",
    "directional_summary",
    "document_completion_perplexity",
    "expert_probabilities",
    "expert_votes",
    "from_declination_inclination",
    "from_lonlat",
    "ksd",
    "label_scores",
    "log_perplexity",
    "mean_direction",
    "mixture_log_predictive",
    "mixture_perplexity",
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
    "predict_labels",
    "simplex_summary",
    "spherical_kmeans",
    "stein_test",
    "stein_thinning",
    "step_halving",
    "temperature_summary",
    "to_declination_inclination",
    "to_lonlat",
    "top_words",
    "topics_by_class",
    "uniformity_test",
    "vmf_residual_test",
]
