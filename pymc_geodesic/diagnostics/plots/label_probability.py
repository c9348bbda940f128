"""Whether the probabilities of a linear classifier can be trusted."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike
from scipy.stats import beta

from pymc_geodesic.diagnostics.linear_classifier import LinearClassifier
from pymc_geodesic.diagnostics.plots.canvas import new_axes


def plot_label_probability(
    idata: xr.DataTree | LinearClassifier,
    X: Any,
    y: ArrayLike,
    *,
    distance: bool = False,
    bins: int = 12,
    mass: float = 0.94,
    label: str | None = None,
    ax: Any | None = None,
) -> Any:
    """Plot predicted probabilities and observed frequencies of labels against the score.

    With two classes: the probability of the label +1 against the posterior mean of the signed
    score. With more: the probability that the predicted label is right against the difference
    between the two largest scores. Rows are sorted into bins of equal numbers; the line shows the
    mean prediction of each bin, the points what was observed there, with Jeffreys intervals. A
    calibrated classifier runs through the points.

    Parameters
    ----------
    idata : xarray.DataTree or LinearClassifier
        Draws of a linear support vector machine.
    X : array_like or scipy.sparse matrix, shape (row, feature)
        Rows that were not used to fit.
    y : array_like, shape (row,)
        Their labels.
    distance : bool
        Show the signed distance to the boundary, the score divided by the length of the mean
        weights, instead of the score; two classes only.
    bins : int
        Number of bins.
    mass : float
        Probability of the intervals.
    label : str, optional
        Label of the prediction in the legend.
    ax : matplotlib.axes.Axes, optional
        Axes to draw into; a new figure by default. Several calls with the same axes compare
        models.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    ValueError
        If there are fewer rows than bins, labels are no classes of the classifier, or a distance is
        wanted for more than two classes.

    Examples
    --------
    >>> import arviz as az
    >>> import numpy as np
    >>> from pymc_geodesic.diagnostics import plot_label_probability
    >>> rng = np.random.default_rng(1)
    >>> draws = rng.normal([1.0, -1.0], 0.2, size=(2, 100, 2))
    >>> X = rng.normal(size=(400, 2))
    >>> y = np.where(X @ [1.0, -1.0] + rng.logistic(size=400) > 0, 1, -1)
    >>> ax = plot_label_probability(az.from_dict({"posterior": {"weights": draws}}), X, y)
    >>> ax.get_ylabel()
    'probability of the label +1'
    """
    classifier = idata if isinstance(idata, LinearClassifier) else LinearClassifier(idata)
    scores, probability = classifier.decision_function(X), classifier.predict_proba(X)
    observed = classifier.checked_labels(y, len(scores))
    if not 1 <= bins <= len(observed):
        raise ValueError(f"`bins` must be between 1 and the {len(observed)} rows, got {bins}.")
    if classifier.is_binary:
        place, predicted, event = scores, probability[:, 1], observed == 1
        ylabel, xlabel = "probability of the label +1", "mean score"
        if distance:
            place, xlabel = scores / np.linalg.norm(classifier.coef), "distance to the boundary"
    else:
        if distance:
            raise ValueError("`distance` is to one boundary: it needs two classes.")
        two = np.partition(scores, -2, axis=1)
        chosen = np.argmax(scores, axis=1)
        place = two[:, -1] - two[:, -2]
        predicted = probability[np.arange(len(chosen)), chosen]
        event = classifier.classes[chosen] == observed
        ylabel, xlabel = "probability of the predicted label", "lead of the best score"

    ax = new_axes(ax, figsize=(6, 4))
    parts = np.array_split(np.argsort(place), bins)
    middle, mean, share = (
        np.array([values[part].mean() for part in parts]) for values in (place, predicted, event)
    )
    count = np.array([len(part) for part in parts])
    hits = share * count
    ends = [
        beta.ppf(q, hits + 0.5, count - hits + 0.5) for q in ((1 - mass) / 2, 1 - (1 - mass) / 2)
    ]
    ax.plot(middle, mean, label=label or "predicted")
    ax.errorbar(
        middle,
        share,
        yerr=[np.maximum(share - ends[0], 0.0), np.maximum(ends[1] - share, 0.0)],
        fmt="o",
        markersize=4,
        capsize=2,
        color="black",
        label=None if "observed" in ax.get_legend_handles_labels()[1] else "observed",
    )
    ax.set(xlabel=xlabel, ylabel=ylabel, ylim=(-0.03, 1.03))
    ax.legend()
    return ax
