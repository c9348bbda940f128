"""Max-margin topic model (MedLDA) as a PyMC model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike
from scipy import sparse

from pymc_geodesic.arguments import check_positive
from pymc_geodesic.distributions.hinge import Hinge, MulticlassHinge
from pymc_geodesic.topics.labeled_documents import labeled_counts
from pymc_geodesic.topics.lda import lda


def medlda(
    counts: ArrayLike | sparse.csr_array,
    labels: ArrayLike,
    n_topics: int,
    alpha: ArrayLike = 1.0,
    beta: ArrayLike = 1.0,
    cost: float = 1.0,
    margin: float = 1.0,
    *,
    prior_scale: float = 1.0,
    documents: Sequence[Any] | None = None,
    vocabulary: Sequence[Any] | None = None,
    classes: Sequence[Any] | None = None,
) -> pm.Model:
    r"""Latent Dirichlet allocation whose proportions are the features of a max-margin classifier.

    .. math::

        \varphi_k \sim \text{Dirichlet}(\beta), \quad
        \theta_d \sim \text{Dirichlet}(\alpha), \quad
        \eta \sim N(0, \tau^2 I), \quad
        \log p(c \mid \theta, \varphi)
        = \sum_{d, w} c_{dw} \log \sum_k \theta_{dk} \varphi_{kw},

    .. math:: \psi(y_d) = \exp\bigl(-c \max(0, \ell - y_d\, \eta \cdot \theta_d)\bigr),

    or the multiclass hinge for labels 0 … L − 1. It differs from the model of `medlda_gibbs` in the
    features: the topics of single words are summed over, so that the classifier depends on the
    proportions :math:`\theta_d` instead of the mean assignments :math:`\bar z_d`, to which they are
    close in long documents. Other variables can be added to the model. Sample it with

    - ``SGGMC(local=["theta"], minibatch=["counts", "y"], batch_size=50)``: minibatches, with
      geodesic Monte Carlo of θ, for β near or above one;
    - ``pm.sample()``: NUTS, for a few documents.

    Parameters
    ----------
    counts, n_topics, alpha, beta, documents, vocabulary
        See `lda`.
    labels : array_like, shape (document,)
        −1 and +1, or 0 … L − 1.
    cost, margin : float
        c and ℓ, positive.
    prior_scale : float
        τ.
    classes : sequence, optional
        Coordinates of the dimension ``class``.

    Returns
    -------
    pymc.Model
        `lda` with the free variable ``weights`` (topic) or (topic, class), the observed ``label``
        (document), and data ``y`` (document), ``cost`` and ``margin``.

    Raises
    ------
    ValueError
        If counts, labels or other arguments are invalid.

    See Also
    --------
    predict : labels of new documents, with ``features="proportions"`` where ``theta`` is not kept.

    References
    ----------
    Zhu, Chen, Perkins, Zhang (2014), Gibbs Max-margin Topic Models with Data Augmentation.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.topics import medlda
    >>> counts = np.random.default_rng(1).poisson(0.5, size=(30, 8))
    >>> model = medlda(counts, np.arange(30) % 3, n_topics=4, classes=["a", "b", "c"])
    >>> model.free_RVs, model.named_vars_to_dims["weights"]
    ([topics, theta, weights], ('topic', 'class'))
    """
    for name, number in (("cost", cost), ("margin", margin), ("prior_scale", prior_scale)):
        check_positive(name, number)
    model = lda(counts, n_topics, alpha, beta, documents=documents, vocabulary=vocabulary)
    checked = labeled_counts(counts, labels, n_topics, alpha, beta, None, None, classes)
    y = np.asarray(labels)
    class_dims: tuple[str, ...] = ()
    if not checked.is_binary:
        model.add_coord("class", checked.coords["class"])
        class_dims = ("class",)
    with model:
        observed = pm.Data("y", y.astype(np.int64), dims="document")
        c = pm.Data("cost", float(cost))
        m = pm.Data("margin", float(margin))
        weights = pm.Normal("weights", 0.0, float(prior_scale), dims=("topic", *class_dims))
        loss = MulticlassHinge if class_dims else Hinge
        scores = model["theta"] @ weights
        loss("label", scores, c, m, observed=observed, dims="document")
    return model
