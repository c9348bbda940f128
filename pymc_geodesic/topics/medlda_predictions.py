"""Labels of new documents by max-margin topics, and the topics of each class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import xarray as xr
from arviz_base import convert_to_datatree
from numpy.typing import ArrayLike

from pymc_geodesic.diagnostics.posterior_draws import evenly_spaced, group_with
from pymc_geodesic.runtime.streams import new_stream
from pymc_geodesic.sparse.count_matrices import word_counts
from pymc_geodesic.topics.alignment import get_topics
from pymc_geodesic.topics.lda import SMALLEST, mean_proportions, stored_alpha


def decision_function(
    idata: xr.DataTree,
    X: Any,
    *,
    n_tune: int = 10,
    n_sweeps: int = 20,
    n_draws: int | None = None,
    features: Literal["assignments", "proportions"] | None = None,
    random_seed: int | np.random.Generator | None = None,
) -> xr.DataArray:
    r"""Scores of the labels of new documents, averaged over the draws.

    For each draw the topics of the words of a document are sampled given φ, without a label, and
    the scores are :math:`s = \eta^\top E[\bar z \mid w, \varphi]`, or
    :math:`\eta^\top E[\theta \mid w, \varphi]`. The mean over draws does not depend on the order
    of the topics.

    Parameters
    ----------
    idata : xarray.DataTree
        Draws of `medlda`, `medlda_gibbs`, `medlda_ssgrld` or `medlda_passive_aggressive`, with
        ``topics``, ``weights`` and ``constant_data["alpha"]``.
    X : array_like or scipy.sparse matrix, shape (document, word)
        Counts of words, in the order of those of the topics.
    n_tune, n_sweeps : int
        Gibbs sweeps over each document that are discarded, and that are averaged over.
    n_draws : int, optional
        Number of posterior draws to use, evenly spaced over all chains; all by default.
    features : {"assignments", "proportions"}, optional
        Features of the classifier: the mean assignments, as in `medlda_gibbs`, or the proportions
        θ, as in `medlda`. By default the proportions if the draws have ``theta``.
    random_seed : int or numpy.random.Generator, optional

    Returns
    -------
    xarray.DataArray, shape (document,) or (document, class)
        Positive scores are those of the label +1; with more than two classes the largest score is
        that of the predicted class.

    Raises
    ------
    ValueError
        If variables are missing, shapes do not match, or counts are negative or fractional.

    See Also
    --------
    predict : the labels.

    References
    ----------
    Zhu, Chen, Perkins, Zhang (2014), Gibbs Max-margin Topic Models with Data Augmentation,
    section 4.3.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.topics import decision_function, medlda_gibbs
    >>> counts = np.array([[5, 5, 0, 0], [0, 0, 5, 5], [4, 6, 0, 0], [0, 1, 4, 5]])
    >>> idata = medlda_gibbs(counts, [1, -1, 1, -1], n_topics=2, margin=16.0, random_seed=1)
    >>> decision_function(idata, [[3, 5, 1, 0], [1, 0, 4, 4]], random_seed=1).values > 0
    array([ True, False])
    """
    tree = convert_to_datatree(idata)
    source = "decision_function takes the draws of topics.medlda_gibbs"
    group_with(tree, ("topics", "weights"), source)
    if features is None:
        features = "proportions" if "theta" in tree["posterior"] else "assignments"
    if features not in ("assignments", "proportions"):
        raise ValueError(f'`features` must be "assignments" or "proportions", got {features!r}.')
    phi = get_topics(tree, "topics").values
    weights = tree["posterior"]["weights"]
    alpha = stored_alpha(tree)
    if alpha is None:
        raise ValueError("`alpha` is not in `constant_data`.")
    phi = phi.reshape(-1, *phi.shape[-2:])
    eta = weights.to_numpy().reshape(len(phi), len(alpha), -1)
    kept = evenly_spaced(n_draws, len(phi))
    phi, eta = phi[kept], eta[kept]
    rows = word_counts(X, phi.shape[-1], name="X")
    lengths = np.asarray(rows.sum(axis=1)).reshape(-1, 1)
    rng = np.random.default_rng(random_seed)
    scores = np.zeros((rows.shape[0], eta.shape[-1]))
    for one_phi, one_eta in zip(np.maximum(phi, SMALLEST), eta, strict=True):
        theta = mean_proportions(one_phi, rows, alpha, n_tune, n_sweeps, new_stream(rng))
        in_topics = np.where(lengths > 0.0, theta * (lengths + alpha.sum()) - alpha, 0.0)
        zbar = in_topics / np.maximum(lengths, 1.0)
        scores += ((zbar if features == "assignments" else theta) @ one_eta) / len(phi)
    if "class" not in weights.dims:
        return xr.DataArray(scores[:, 0], dims="document", name="score")
    coords = {"class": weights["class"].to_numpy()}
    return xr.DataArray(scores, coords, dims=("document", "class"), name="score")


def predict(
    idata: xr.DataTree,
    X: Any,
    *,
    n_tune: int = 10,
    n_sweeps: int = 20,
    n_draws: int | None = None,
    features: Literal["assignments", "proportions"] | None = None,
    random_seed: int | np.random.Generator | None = None,
) -> xr.DataArray:
    """Labels of new documents: those of the mean scores, see `decision_function`.

    Parameters
    ----------
    idata, X, n_tune, n_sweeps, n_draws, features, random_seed
        See `decision_function`.

    Returns
    -------
    xarray.DataArray, shape (document,)
        −1 and +1, or coordinates of ``class``.

    Raises
    ------
    ValueError
        As `decision_function`.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.topics import medlda_gibbs, predict
    >>> counts = np.array([[5, 5, 0, 0], [0, 0, 5, 5], [4, 6, 0, 0], [0, 1, 4, 5]])
    >>> idata = medlda_gibbs(counts, [1, -1, 1, -1], n_topics=2, margin=16.0, random_seed=1)
    >>> predict(idata, [[3, 5, 1, 0], [1, 0, 4, 4]], random_seed=1).values
    array([ 1, -1])
    """
    scores = decision_function(
        idata,
        X,
        n_tune=n_tune,
        n_sweeps=n_sweeps,
        n_draws=n_draws,
        features=features,
        random_seed=random_seed,
    )
    if "class" not in scores.dims:
        return xr.DataArray(np.where(scores > 0, 1, -1), dims="document", name="label")
    labels = scores["class"].to_numpy()[scores.to_numpy().argmax(axis=1)]
    return xr.DataArray(labels, dims="document", name="label")


def topics_by_class(
    idata: xr.DataTree,
    labels: ArrayLike,
    vocabulary: Sequence[str] | None = None,
    *,
    n: int = 5,
    chain: int = 0,
) -> xr.Dataset:
    """Mean topic proportions of the documents of each class, and its salient topic.

    Parameters
    ----------
    idata : xarray.DataTree
        With ``zbar`` (chain, draw, document, topic), and ``topics`` (chain, draw, topic, word).
    labels : array_like, shape (document,)
    vocabulary : sequence of str, optional
        The words; by default the coordinate of the word dimension.
    n : int
        Number of words of each salient topic.
    chain : int
        Chain to use: the order of the topics differs between chains.

    Returns
    -------
    xarray.Dataset
        ``proportions`` (class, topic), whose rows sum to one; ``salient`` (class), the topic with
        the largest difference between its share in the class and its share in all documents;
        ``word`` (class, rank), the most probable words of that topic.

    Raises
    ------
    ValueError
        If there is not one label for each document, or variables are missing.

    References
    ----------
    Hu, Zhu, Zhang, Fast Sampling Methods for Bayesian Max-margin Models, figure 9 and table 1.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.topics import medlda_gibbs, topics_by_class
    >>> counts = np.array([[5, 5, 0, 0], [0, 0, 5, 5], [4, 6, 0, 0], [0, 1, 4, 5]])
    >>> idata = medlda_gibbs(counts, [1, -1, 1, -1], n_topics=2, margin=16.0, random_seed=1)
    >>> table = topics_by_class(idata, [1, -1, 1, -1], ["sun", "sea", "snow", "ice"], n=2)
    >>> [sorted(words) for words in table["word"].values.tolist()]  # classes −1 and +1
    [['ice', 'snow'], ['sea', 'sun']]
    """
    source = "topics_by_class takes the draws of topics.medlda_gibbs with all their variables"
    posterior = group_with(convert_to_datatree(idata), ("zbar", "topics"), source)
    of_documents, of_topics = posterior["zbar"], posterior["topics"]
    zbar: np.ndarray = of_documents.isel(chain=chain).mean("draw").to_numpy()
    phi: np.ndarray = of_topics.isel(chain=chain).mean("draw").to_numpy()
    y = np.asarray(labels)
    if y.shape != (len(zbar),):
        raise ValueError(
            f"`labels` must hold one label for each of the {len(zbar)} documents, got "
            f"shape {y.shape}."
        )
    words = np.asarray(of_topics["word"].to_numpy() if vocabulary is None else vocabulary)
    if len(words) != phi.shape[1]:
        raise ValueError(f"`vocabulary` has {len(words)} words, the topics {phi.shape[1]}.")
    if not 1 <= n <= len(words):
        raise ValueError(f"`n` must be between 1 and the {len(words)} words, got {n}.")
    if "class" in posterior.coords and y.dtype.kind in "iu":  # numbers of named classes
        y = posterior["class"].to_numpy()[y]
    classes = np.unique(y)
    shares = np.stack([zbar[y == one].mean(axis=0) for one in classes])
    shares /= np.maximum(shares.sum(axis=1, keepdims=True), SMALLEST)
    names = of_documents["topic"].to_numpy()
    salient = np.argmax(shares - zbar.mean(axis=0), axis=1)
    best = np.argsort(-phi[salient], axis=1)[:, :n]
    return xr.Dataset(
        {
            "proportions": (("class", "topic"), shares),
            "salient": ("class", names[salient]),
            "word": (("class", "rank"), words[best]),
        },
        coords={"class": classes, "topic": names, "rank": np.arange(1, n + 1)},
    )
