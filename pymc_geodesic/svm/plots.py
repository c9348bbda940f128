"""Where a linear classifier is sure, in the plane of two features."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike
from scipy.stats import beta

from pymc_geodesic.diagnostics.plots.canvas import new_axes
from pymc_geodesic.svm.linear_classifier import LinearClassifier

_GRID = 160


def plot_decision_band(
    idata: xr.DataTree | LinearClassifier,
    X: ArrayLike,
    y: ArrayLike | None = None,
    *,
    mass: float = 0.94,
    max_points: int = 500,
    feature_names: tuple[str, str] = ("feature 1", "feature 2"),
    ax: Any | None = None,
) -> Any:
    """Plot the probability of the label +1 over two features, and how well the boundary is known.

    Colours show the probability of the label, the solid line the boundary of the posterior mean.
    Between the dashed lines lies the band in which the classifiers of the draws disagree: either
    label has more than ``(1 - mass) / 2`` of their votes.

    Parameters
    ----------
    idata : xarray.DataTree or LinearClassifier
        Draws of a linear support vector machine with two classes and two features.
    X : array_like, shape (row, 2)
        Points to show, which also set the limits of the plot.
    y : array_like, shape (row,), optional
        Their labels, −1 and +1.
    mass : float
        Share of the votes outside of which the boundary is taken as known.
    max_points : int
        Show only this many points, evenly spaced in the order of the rows.
    feature_names : tuple of str
        Labels of the axes.
    ax : matplotlib.axes.Axes, optional
        Axes to draw into; a new figure by default.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ValueError
        If the classifier has more than two classes or features, or labels are not −1 and +1.

    Examples
    --------
    >>> import arviz as az
    >>> import numpy as np
    >>> from pymc_geodesic.svm import plot_decision_band
    >>> rng = np.random.default_rng(1)
    >>> draws = rng.normal([1.0, -1.0], 0.2, size=(2, 100, 2))
    >>> X = rng.normal(size=(40, 2))
    >>> ax = plot_decision_band(az.from_dict({"posterior": {"weights": draws}}), X)
    >>> ax.get_xlabel()
    'feature 1'
    """
    classifier = idata if isinstance(idata, LinearClassifier) else LinearClassifier(idata)
    if not classifier.is_binary or len(classifier.coef) != 2:
        raise ValueError(
            "This plot shows two classes and two features; the weights have the shape "
            f"{classifier.coef.shape}."
        )
    if not 0 < mass < 1:
        raise ValueError(f"`mass` must be between 0 and 1, got {mass}.")
    points = np.asarray(X, dtype=float)
    labels = None if y is None else classifier.checked_labels(y, len(points))
    ax = new_axes(ax, figsize=(5.5, 4.5))
    low, high = points.min(axis=0), points.max(axis=0)
    low, high = low - 0.05 * (high - low), high + 0.05 * (high - low)
    horizontal, vertical = (np.linspace(a, b, _GRID) for a, b in zip(low, high, strict=True))
    grid = np.stack(np.meshgrid(horizontal, vertical), axis=-1)
    rows = grid.reshape(-1, 2)
    probability = classifier.predict_proba(rows)[:, 1].reshape(_GRID, _GRID)
    votes = classifier.predict_proba(rows, kind="votes")[:, 1].reshape(_GRID, _GRID)
    score = classifier.decision_function(rows).reshape(_GRID, _GRID)

    levels = np.linspace(0.0, 1.0, 11)
    colours = ax.contourf(
        horizontal, vertical, probability, levels, cmap="RdBu_r", alpha=0.7, vmin=-0.1, vmax=1.1
    )
    ax.figure.colorbar(colours, ax=ax, label="probability of the label +1")
    tail = (1.0 - mass) / 2.0
    plane = (horizontal, vertical)
    for field, level, style in ((score, 0.0, "-"), (votes, tail, "--"), (votes, 1 - tail, "--")):
        if field.min() < level < field.max():
            ax.contour(*plane, field, [level], colors="black", linestyles=style, linewidths=1.2)
    shown = np.unique(np.linspace(0, len(points) - 1, min(max_points, len(points))).astype(int))
    if labels is None:
        ax.plot(*points[shown].T, ".", color="black", markersize=3)
    else:
        for label, colour, marker in ((-1, "tab:blue", "o"), (1, "tab:red", "^")):
            chosen = points[shown][labels[shown] == label]
            edge = {"markeredgecolor": "white", "markeredgewidth": 0.4}
            ax.plot(*chosen.T, marker, color=colour, markersize=4, label=f"{label:+d}", **edge)
        ax.legend(title="label")
    ax.set(xlabel=feature_names[0], ylabel=feature_names[1])
    ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    return ax


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
    >>> from pymc_geodesic.svm import plot_label_probability
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
