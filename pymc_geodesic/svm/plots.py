"""Plots of a Bayesian linear classifier: decision boundary and calibration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from arviz_base import rcParams
from contourpy import FillType, LineType, contour_generator
from numpy.typing import ArrayLike
from scipy.stats import beta

from pymc_geodesic.diagnostics.panels import COLORS, DARK, Pen, draw, panels
from pymc_geodesic.runtime.missing_values import check_missing
from pymc_geodesic.svm.predictions import VAR_NAMES, LinearDraws

if TYPE_CHECKING:
    from arviz_plots import PlotCollection

GRID_SIZE = 160
"""Points of the grid along each feature."""

LEVELS = (0.0, 0.05, 0.2, 0.4, 0.6, 0.8, 0.95, 1.0)
"""Boundaries of the filled regions of the probability."""

FILLS = ("#2166ac", "#67a9cf", "#d1e5f0", "#f7f7f7", "#fddbc7", "#ef8a62", "#b2182b")
"""Diverging color of each region (ColorBrewer RdBu)."""

LABELS = ("#053061", "#67001f")
"""Colors of the points with the labels −1 and +1."""


def plot_decision_band(
    idata: xr.DataTree,
    X: ArrayLike,
    y: ArrayLike | None = None,
    *,
    ci_prob: float | None = None,
    max_points: int = 500,
    feature_names: Sequence[str] | None = None,
    n_draws: int | None = None,
    var_names: Sequence[str] = VAR_NAMES,
    backend: str | None = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    """Plot the probability of the label +1 over two features, with the decision boundary.

    Colors show the probability of the label and the solid line is the boundary of the posterior
    mean. Between the dashed lines the classifiers of the draws disagree: each label has more than
    ``(1 - ci_prob) / 2`` of their votes.

    Parameters
    ----------
    idata : xarray.DataTree
        Draws of a linear support vector machine with two classes and two features.
    X : array_like, shape (row, 2)
        Points to show, which also set the limits of the plot.
    y : array_like, shape (row,), optional
        Their labels, −1 and +1.
    ci_prob : float, optional
        Probability of the band; ``rcParams["stats.ci_prob"]`` by default.
    max_points : int
        Maximum number of points to show, evenly spaced in the order of the rows.
    feature_names : sequence of str, optional
        Labels of the axes; by default the coordinates of the weights if they are strings.
    n_draws : int, optional
        Number of posterior draws to use, evenly spaced over all chains; all by default.
    var_names : sequence of str
        Names of the weights and, optionally, of the intercept.
    backend : {"matplotlib", "plotly", "bokeh"}, optional
        ``rcParams["plot.backend"]`` by default.
    **pc_kwargs
        Arguments ``figure_kwargs`` and ``col_wrap`` of ``arviz_plots.PlotCollection.wrap``.

    Returns
    -------
    arviz_plots.PlotCollection

    Raises
    ------
    ImportError
        If the backend is not installed.
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
    >>> pc = plot_decision_band(az.from_dict({"posterior": {"weights": draws}}), X)
    >>> pc.get_target("probability", {}).get_xlabel()
    'feature 1'
    """
    classifier = LinearDraws(idata, var_names, n_draws)
    if not (classifier.is_binary and classifier.n_features == 2):
        raise ValueError(
            "plot_decision_band needs the labels -1 and +1 and two features, got "
            f"{len(classifier.classes)} classes and {classifier.n_features} features."
        )
    prob = _validate_probability(ci_prob)
    points = np.asarray(X, dtype=float)
    labels = None if y is None else _validate_labels(y, classifier.classes, len(points))
    if feature_names is None:
        feature_names = classifier.feature_names or ("feature 1", "feature 2")
    low, high = points.min(axis=0), points.max(axis=0)
    low, high = low - 0.05 * (high - low), high + 0.05 * (high - low)
    axes = [np.linspace(a, b, GRID_SIZE) for a, b in zip(low, high, strict=True)]
    grid = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 2)
    shape = (GRID_SIZE, GRID_SIZE)
    dims = ("y", "x")
    values = {
        "probability": classifier.probabilities(grid, "label")[:, 1],
        "votes": classifier.probabilities(grid, "votes")[:, 1],
        "score": classifier.mean_scores(grid),
    }
    data = {name: xr.DataArray(value.reshape(shape), dims=dims) for name, value in values.items()}
    collection = panels(
        xr.Dataset({"probability": data["probability"]}), backend, core=dims, size=(550, 450),
        **pc_kwargs,
    )  # fmt: skip
    shown = np.unique(np.linspace(0, len(points) - 1, min(max_points, len(points))).astype(int))
    tail = (1.0 - prob) / 2.0

    def panel(pen: Pen, probability: xr.DataArray, _: str) -> None:
        legend = {}
        for lower, upper, color in zip(LEVELS, LEVELS[1:], FILLS, strict=False):
            x, y = _filled_region(axes, probability.transpose(*dims).values, lower, upper)
            if len(x):
                pen.area(x, y, color=color, alpha=0.7)
                legend[f"{lower:.0%}–{upper:.0%}"] = color
        pen.line(*_contour_line(axes, data["score"].values, 0.0))
        dashed = pen.module.get_default_aes("linestyle", 2)[1]
        for level in (tail, 1.0 - tail):
            pen.line(*_contour_line(axes, data["votes"].values, level), linestyle=dashed)
        if labels is None:
            pen.points(*points[shown].T, color=DARK)
        else:
            for label, color in ((-1, LABELS[0]), (1, LABELS[1])):
                chosen = points[shown][labels[shown] == label]
                if len(chosen):
                    pen.points(*chosen.T, color=color, size=4.0)
                    legend[f"label {label:+d}"] = color
        pen.labels(*feature_names)
        pen.title("probability of the label +1")
        pen.set_limits((low[0], high[0]), (low[1], high[1]))
        pen.legend(legend)

    draw(collection, "decision_band", panel)
    return collection


def plot_label_probability(
    idata: xr.DataTree,
    X: Any,
    y: ArrayLike,
    *,
    n_bins: int = 12,
    ci_prob: float | None = None,
    n_draws: int | None = None,
    var_names: Sequence[str] = VAR_NAMES,
    backend: str | None = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    """Plot predicted probabilities and observed frequencies of labels: a calibration plot.

    With two classes: the probability of the label +1 against the posterior mean of the signed
    score. With more: the probability that the predicted label is correct against the difference
    of the two largest scores. Rows are sorted into bins of equal size. The line is the mean
    prediction in each bin and the points are the observed frequencies, with Jeffreys intervals.
    The line of a calibrated classifier passes through the intervals.

    Parameters
    ----------
    idata : xarray.DataTree
        Draws of a linear support vector machine.
    X : array_like or scipy.sparse matrix, shape (row, feature)
        Held-out rows.
    y : array_like, shape (row,)
        Their labels.
    n_bins : int
        Number of bins.
    ci_prob : float, optional
        Probability of the intervals; ``rcParams["stats.ci_prob"]`` by default.
    n_draws : int, optional
        Number of posterior draws to use, evenly spaced over all chains; all by default.
    var_names : sequence of str
        Names of the weights and, optionally, of the intercept.
    backend : {"matplotlib", "plotly", "bokeh"}, optional
        ``rcParams["plot.backend"]`` by default.
    **pc_kwargs
        Arguments ``figure_kwargs`` and ``col_wrap`` of ``arviz_plots.PlotCollection.wrap``.

    Returns
    -------
    arviz_plots.PlotCollection

    Raises
    ------
    ImportError
        If the backend is not installed.
    ValueError
        If there are fewer rows than bins, or labels are not classes of the classifier.

    Examples
    --------
    >>> import arviz as az
    >>> import numpy as np
    >>> from pymc_geodesic.svm import plot_label_probability
    >>> rng = np.random.default_rng(1)
    >>> draws = rng.normal([1.0, -1.0], 0.2, size=(2, 100, 2))
    >>> X = rng.normal(size=(400, 2))
    >>> y = np.where(X @ [1.0, -1.0] + rng.logistic(size=400) > 0, 1, -1)
    >>> pc = plot_label_probability(az.from_dict({"posterior": {"weights": draws}}), X, y)
    >>> pc.get_target("probability", {}).get_ylabel()
    'probability of the label +1'
    """
    classifier = LinearDraws(idata, var_names, n_draws)
    prob = _validate_probability(ci_prob)
    X = classifier.matrix(X)
    scores, probability = classifier.mean_scores(X), classifier.probabilities(X, "label")
    labels = _validate_labels(y, classifier.classes, len(scores))
    if not 1 <= n_bins <= len(labels):
        raise ValueError(f"n_bins must be between 1 and the {len(labels)} rows, got {n_bins}")
    if scores.ndim == 1:
        position, predicted, event = scores, probability[:, 1], labels == 1
        xlabel, ylabel = "mean score", "probability of the label +1"
    else:
        largest = np.partition(scores, -2, axis=1)
        chosen = np.argmax(scores, axis=1)
        position = largest[:, -1] - largest[:, -2]
        predicted = probability[np.arange(len(chosen)), chosen]
        event = classifier.classes[chosen] == labels
        xlabel, ylabel = "margin of the largest score", "probability of the predicted label"

    bins = np.array_split(np.argsort(position), n_bins)
    middle, mean, observed = (
        np.array([values[rows].mean() for rows in bins]) for values in (position, predicted, event)
    )
    size = np.array([len(rows) for rows in bins])
    hits = observed * size
    tail = (1.0 - prob) / 2.0
    lower, upper = (beta.ppf(q, hits + 0.5, size - hits + 0.5) for q in (tail, 1.0 - tail))
    data = xr.Dataset({"probability": ("bin", mean)})
    collection = panels(data, backend, core=("bin",), size=(600, 400), **pc_kwargs)

    def panel(pen: Pen, part: xr.DataArray, _: str) -> None:
        gap = np.full(n_bins, np.nan)
        pen.line(middle, part.values, color=COLORS[0])
        pen.points(middle, observed, size=4.0)
        pen.line(
            np.stack([middle, middle, gap], axis=1).ravel(),
            np.stack([np.minimum(lower, observed), np.maximum(upper, observed), gap], 1).ravel(),
            width=1.0,
        )
        pen.labels(xlabel, ylabel)
        pen.legend({"predicted": COLORS[0], "observed": DARK})

    draw(collection, "label_probability", panel)
    return collection


def _validate_labels(y: ArrayLike, classes: np.ndarray, n_rows: int) -> np.ndarray:
    """Validate labels, one for each row and all of them classes."""
    check_missing("y", y)
    labels = np.asarray(y)
    if labels.shape != (n_rows,):
        raise ValueError(
            f"y must contain one label for each of the {n_rows} rows of X, got shape {labels.shape}"
        )
    unknown = ~np.isin(labels, classes)
    if unknown.any():
        raise ValueError(
            f"y contains the label {labels[unknown][0].item()!r}, which is not among the classes "
            f"{classes.tolist()}"
        )
    return labels


def _validate_probability(ci_prob: float | None) -> float:
    """Return the probability of an interval, by default that of ArviZ."""
    prob = float(rcParams["stats.ci_prob"] if ci_prob is None else ci_prob)
    if not 0 < prob < 1:
        raise ValueError(f"ci_prob must be between 0 and 1, got {prob}")
    return prob


def _contour_line(axes: list[np.ndarray], values: np.ndarray, level: float) -> tuple[Any, Any]:
    """Return the contour line of a function on a grid, with NaN between its parts."""
    x, y = axes
    lines: Any = contour_generator(x, y, values, line_type=LineType.Separate).lines(level)
    return _join(lines)


def _filled_region(
    axes: list[np.ndarray], values: np.ndarray, lower: float, upper: float
) -> tuple[Any, Any]:
    """Return the polygons between two levels, with NaN between them.

    A hole is connected to the first vertex of its polygon.
    """
    x, y = axes
    contour = contour_generator(x, y, values, fill_type=FillType.OuterOffset)
    filled: Any = contour.filled(lower, upper)
    polygons = []
    for vertices, offsets in zip(*filled, strict=True):
        rings = np.split(vertices, offsets[1:-1])
        holes = [np.concatenate([ring, vertices[:1]]) for ring in rings[1:]]
        polygons.append(np.concatenate([rings[0], *holes]))
    return _join(polygons)


def _join(parts: Sequence[np.ndarray]) -> tuple[Any, Any]:
    """Concatenate the coordinates of several paths, with NaN between them."""
    gap = np.full((1, 2), np.nan)
    paths = [each for part in parts for each in (part, gap)][:-1]
    return tuple(np.concatenate(paths).T) if paths else ((), ())
