"""What topics that tell labels apart say of new documents, and of the labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import xarray as xr
from arviz_base import convert_to_datatree
from numpy.typing import ArrayLike

from pymc_geodesic.diagnostics.draws import group_with
from pymc_geodesic.runtime.streams import new_stream
from pymc_geodesic.topics.alignment import topics_of
from pymc_geodesic.topics.completion import (
    SMALLEST,
    counts_of_words,
    mean_proportions,
    stored_alpha,
)


class LabelScores(NamedTuple):
    """How good predicted labels are.

    Attributes
    ----------
    accuracy : float
        Share of labels that are right.
    f1 : float
        2 · precision · recall / (precision + recall), averaged over the classes.
    """

    accuracy: float
    f1: float


def label_scores(labels: ArrayLike, predicted: ArrayLike) -> LabelScores:
    """Compare predicted labels with the true ones.

    Parameters
    ----------
    labels, predicted : array_like, shape (n,)

    Returns
    -------
    LabelScores
        F1 is averaged over the classes that occur in either of the two.

    Raises
    ------
    ValueError
        If there are not as many of one as of the other, or none, or they are coded in two ways.

    Examples
    --------
    >>> from pymc_geodesic.topics import label_scores
    >>> label_scores([1, 1, -1, -1], [1, 1, 1, -1])
    LabelScores(accuracy=0.75, f1=0.733)
    """
    true, guess = np.asarray(labels), np.asarray(predicted)
    if true.shape != guess.shape or true.ndim != 1 or not true.size:
        raise ValueError(
            f"`labels` and `predicted` must be vectors of one length, got the shapes {true.shape} "
            f"and {guess.shape}."
        )
    kinds = {"names" if each.dtype.kind in "UST" else each.dtype.kind for each in (true, guess)}
    if "names" in kinds and kinds & set("biuf"):
        raise ValueError(
            f"`labels` such as {true[0]!r} and `predicted` such as {guess[0]!r} are never equal: "
            "give names for both, or numbers."
        )
    if _is_coded(true, 0) and _is_coded(guess, -1):
        raise ValueError(
            "`labels` are 0 and 1, but `predicted` are -1 and +1: pass 2 * labels - 1."
        )
    f1 = [
        2.0 * np.sum((true == one) & (guess == one)) / (np.sum(true == one) + np.sum(guess == one))
        for one in np.union1d(true, guess)
    ]
    return LabelScores(float(np.mean(true == guess)), float(np.mean(f1)))


def _is_coded(labels: np.ndarray, negative: int) -> bool:
    """Whether labels are 1 and this number, which occurs."""
    return bool(np.isin(labels, (negative, 1)).all() and np.any(labels == negative))


def predict_labels(
    idata: xr.DataTree,
    counts: Any,
    *,
    draws: int | None = None,
    n_tune: int = 10,
    n_sweeps: int = 20,
    features: Literal["assignments", "proportions"] | None = None,
    random_seed: int | np.random.Generator | None = None,
) -> xr.Dataset:
    r"""Predict the labels of new documents by topics and classifiers.

    For each draw the topics of the words of a document are sampled given φ, without a label, and
    the scores are :math:`s = \eta^\top E[\bar z \mid w, \varphi]`, or of θ. The label is that of
    the scores averaged over the draws, which needs no order of the topics.

    Parameters
    ----------
    idata : xarray.DataTree
        As `pymc_geodesic.topics.medlda_gibbs` and `pymc_geodesic.topics.medlda_ssgrld` return it,
        with ``topics`` and ``weights``.
    counts : array_like or scipy.sparse matrix, shape (document, word)
        Counts of the words that the topics have.
    draws : int, optional
        Use only this many draws, evenly spaced over all chains.
    n_tune, n_sweeps : int
        Gibbs sweeps over each document that are discarded, and that are averaged over.
    features : {"assignments", "proportions"}, optional
        What the classifier sees: the mean assignments, or, as in `pymc_geodesic.topics.medlda`,
        the proportions θ. By default proportions where the draws hold ``theta``.
    random_seed : int or numpy.random.Generator, optional

    Returns
    -------
    xarray.Dataset
        ``score`` (document) or (document, class), and ``label`` (document): −1 and +1, or a
        coordinate of ``class``.

    Raises
    ------
    ValueError
        If variables are missing, shapes do not fit, or counts are none.

    References
    ----------
    Zhu, Chen, Perkins, Zhang (2014), Gibbs Max-margin Topic Models with Data Augmentation,
    section 4.3.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.topics import predict_labels
    >>> from pymc_geodesic.topics import medlda_gibbs
    >>> counts = np.array([[5, 5, 0, 0], [0, 0, 5, 5], [4, 6, 0, 0], [0, 1, 4, 5]])
    >>> idata = medlda_gibbs(counts, [1, -1, 1, -1], n_topics=2, margin=16.0, random_seed=1)
    >>> predict_labels(idata, [[3, 5, 1, 0], [1, 0, 4, 4]], random_seed=1)["label"].values
    array([ 1, -1])
    """
    tree = convert_to_datatree(idata)
    group_with(tree, ("topics", "weights"), "predict_labels takes the draws of topics.medlda_gibbs")
    if features is None:
        features = "proportions" if "theta" in tree["posterior"] else "assignments"
    if features not in ("assignments", "proportions"):
        raise ValueError(f'`features` must be "assignments" or "proportions", got {features!r}.')
    phi = topics_of(tree, "topics").values
    weights = tree["posterior"]["weights"]
    alpha = stored_alpha(tree)
    if alpha is None:
        raise ValueError("`alpha` is not in `constant_data`.")
    phi = phi.reshape(-1, *phi.shape[-2:])
    eta = weights.to_numpy().reshape(len(phi), len(alpha), -1)
    if draws is not None:
        if not 1 <= draws <= len(phi):
            raise ValueError(f"`draws` must be between 1 and the {len(phi)} draws, got {draws}.")
        kept = np.linspace(0, len(phi) - 1, draws).round().astype(int)
        phi, eta = phi[kept], eta[kept]
    rows = counts_of_words("counts", counts, phi.shape[-1])
    lengths = np.asarray(rows.sum(axis=1)).reshape(-1, 1)
    rng = np.random.default_rng(random_seed)
    scores = np.zeros((rows.shape[0], eta.shape[-1]))
    for one_phi, one_eta in zip(np.maximum(phi, SMALLEST), eta, strict=True):
        theta = mean_proportions(one_phi, rows, alpha, n_tune, n_sweeps, new_stream(rng))
        in_topics = np.where(lengths > 0.0, theta * (lengths + alpha.sum()) - alpha, 0.0)
        zbar = in_topics / np.maximum(lengths, 1.0)
        scores += ((zbar if features == "assignments" else theta) @ one_eta) / len(phi)
    if "class" not in weights.dims:
        signs = np.where(scores[:, 0] > 0, 1, -1)
        return xr.Dataset({"score": ("document", scores[:, 0]), "label": ("document", signs)})
    classes = weights["class"].to_numpy()
    return xr.Dataset(
        {
            "score": (("document", "class"), scores),
            "label": ("document", classes[scores.argmax(axis=1)]),
        },
        coords={"class": classes},
    )


def topics_by_class(
    idata: xr.DataTree,
    labels: ArrayLike,
    vocabulary: Sequence[str] | None = None,
    *,
    n: int = 5,
    chain: int = 0,
) -> xr.Dataset:
    """Average the topic proportions of the documents of each class, and name its salient topic.

    Parameters
    ----------
    idata : xarray.DataTree
        With ``zbar`` (chain, draw, document, topic), and ``topics`` (chain, draw, topic, word).
    labels : array_like, shape (document,)
    vocabulary : sequence of str, optional
        The words; by default the coordinate of the word dimension.
    n : int
        Words of each salient topic.
    chain : int
        Which chain: topics have another order in another one.

    Returns
    -------
    xarray.Dataset
        ``proportions`` (class, topic), whose rows sum to one; ``salient`` (class), the topic whose
        share exceeds its share in all documents most; ``word`` (class, rank), the most
        probable words of that topic.

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
    >>> from pymc_geodesic.topics import topics_by_class
    >>> from pymc_geodesic.topics import medlda_gibbs
    >>> counts = np.array([[5, 5, 0, 0], [0, 0, 5, 5], [4, 6, 0, 0], [0, 1, 4, 5]])
    >>> idata = medlda_gibbs(counts, [1, -1, 1, -1], n_topics=2, margin=16.0, random_seed=1)
    >>> table = topics_by_class(idata, [1, -1, 1, -1], ["sun", "sea", "snow", "ice"], n=2)
    >>> [sorted(words) for words in table["word"].values.tolist()]  # of −1, of +1
    [['ice', 'snow'], ['sea', 'sun']]
    """
    takes = "topics_by_class takes the draws of topics.medlda_gibbs with all their variables"
    posterior = group_with(convert_to_datatree(idata), ("zbar", "topics"), takes)
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
