"""Where a linear classifier is sure, in the plane of two features."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from pymc_geodesic.diagnostics.linear_classifier import LinearClassifier
from pymc_geodesic.diagnostics.plots.canvas import new_axes

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
    >>> from pymc_geodesic.diagnostics import plot_decision_band
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
