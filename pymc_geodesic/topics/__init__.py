"""Topic models."""

from pymc_geodesic.runtime.convergence import ConvergenceWarning
from pymc_geodesic.topics.alignment import align_topics
from pymc_geodesic.topics.completion import completion_probabilities, document_completion_perplexity
from pymc_geodesic.topics.lda import lda
from pymc_geodesic.topics.lda_gibbs import lda_gibbs
from pymc_geodesic.topics.medlda import medlda
from pymc_geodesic.topics.medlda_gibbs import medlda_gibbs
from pymc_geodesic.topics.medlda_passive_aggressive import medlda_passive_aggressive
from pymc_geodesic.topics.medlda_predictions import label_scores, predict_labels, topics_by_class
from pymc_geodesic.topics.medlda_ssgrld import medlda_ssgrld
from pymc_geodesic.topics.perplexity import log_perplexity, plot_perplexity
from pymc_geodesic.topics.spherical_admixture import spherical_admixture
from pymc_geodesic.topics.spherical_admixture_vi import spherical_admixture_vi
from pymc_geodesic.topics.top_words import plot_top_words, top_words

__all__ = [
    "ConvergenceWarning",
    "align_topics",
    "completion_probabilities",
    "document_completion_perplexity",
    "label_scores",
    "lda",
    "lda_gibbs",
    "log_perplexity",
    "medlda",
    "medlda_gibbs",
    "medlda_passive_aggressive",
    "medlda_ssgrld",
    "plot_perplexity",
    "plot_top_words",
    "predict_labels",
    "spherical_admixture",
    "spherical_admixture_vi",
    "top_words",
    "topics_by_class",
]
