r"""Topic models: topics of documents, and topics that predict labels.

Problem: describe each of many documents by its proportions of a few topics. `lda` is for counts of
words, `spherical_admixture` for documents as directions, such as normalized tf-idf vectors, and
`medlda` for counts with labels, which its topics predict.

1. Count words with scikit-learn's ``CountVectorizer``, or compute directions with its
   ``TfidfVectorizer``. Fit a corpus that fits in memory with `lda_gibbs`, `medlda_gibbs` or
   `spherical_admixture_vi`, which return an `xarray.DataTree`. `medlda_ssgrld` (minibatches) and
   `medlda_passive_aggressive` (one pass) scale to more labeled documents.
2. Read the topics with `top_words` and `plot_top_words`; for labels, `topics_by_class`. Apply
   `align_topics` before R-hat and effective sample sizes: topics have no order.
3. Evaluate held-out documents with `perplexity` (counts, whose words
   `pymc_geodesic.datasets.hold_out_words` divides into observed and predicted ones) or
   `log_perplexity` (directions); predict labels with `predict` and `decision_function`, which
   return an `xarray.DataArray`.
4. For larger corpora and streams, the models `lda`, `spherical_admixture` and `medlda` return a
   `pymc.Model`; sample it with `pymc_geodesic.SCIR`, `SGRLD` or `SGGMC` and minibatches of
   documents.

References
----------
Blei, Ng, Jordan (2003), Latent Dirichlet allocation; Griffiths, Steyvers (2004), Finding
scientific topics; Patterson, Teh (2013), Stochastic gradient Riemannian Langevin dynamics on the
probability simplex; Baker, Fearnhead, Fox, Nemeth (2018), Large-scale stochastic sampling from the
probability simplex. Reisinger, Waters, Silverthorn, Mooney (2010), Spherical topic models; Liu,
Zhu, Song (2016), Stochastic gradient geodesic MCMC methods. Zhu, Chen, Perkins, Zhang (2014), Gibbs
max-margin topic models with data augmentation; Shi, Zhu (2014), Online Bayesian passive-aggressive
learning; Hu, Zhu, Zhang (2015), Fast sampling methods for Bayesian max-margin models.

Examples
--------
>>> import numpy as np
>>> import pymc_geodesic as pg
>>> counts = np.repeat([[5, 4, 0, 0], [0, 0, 4, 5]], 10, axis=0)
>>> idata = pg.topics.lda_gibbs(counts, 2, vocabulary=["sun", "moon", "sea", "tide"],
...                             random_seed=1, progressbar=False)
>>> pg.topics.top_words(idata, n=2)
rank      1     2
topic
0       sun  moon
1      tide   sea
"""

from pymc_geodesic.runtime.iterations import ConvergenceWarning
from pymc_geodesic.topics.alignment import align_topics
from pymc_geodesic.topics.lda import lda
from pymc_geodesic.topics.lda_gibbs import lda_gibbs
from pymc_geodesic.topics.medlda import medlda
from pymc_geodesic.topics.medlda_gibbs import medlda_gibbs
from pymc_geodesic.topics.medlda_passive_aggressive import medlda_passive_aggressive
from pymc_geodesic.topics.medlda_predictions import decision_function, predict, topics_by_class
from pymc_geodesic.topics.medlda_ssgrld import medlda_ssgrld
from pymc_geodesic.topics.perplexity import completion_probabilities, log_perplexity, perplexity
from pymc_geodesic.topics.spherical_admixture import spherical_admixture
from pymc_geodesic.topics.spherical_admixture_vi import spherical_admixture_vi
from pymc_geodesic.topics.top_words import plot_top_words, top_words

__all__ = [
    "ConvergenceWarning",
    "align_topics",
    "completion_probabilities",
    "decision_function",
    "lda",
    "lda_gibbs",
    "log_perplexity",
    "medlda",
    "medlda_gibbs",
    "medlda_passive_aggressive",
    "medlda_ssgrld",
    "perplexity",
    "plot_top_words",
    "predict",
    "spherical_admixture",
    "spherical_admixture_vi",
    "top_words",
    "topics_by_class",
]
