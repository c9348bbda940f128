"""Points on the sphere in three dimensions."""

from typing import Any

import numpy as np
import xarray as xr

from pymc_geodesic.diagnostics.plots.canvas import directions, pyplot

# One circle every 30 degrees.
GRID_LINES = 12


def plot_sphere_points(
    draws: xr.DataTree | np.ndarray,
    var_name: str | None = None,
    *,
    group: str = "posterior",
    label: str | None = None,
    max_points: int = 2000,
    ax: Any | None = None,
    **scatter: Any,
) -> Any:
    """Scatter draws of a unit vector over a wire-frame sphere.

    Parameters
    ----------
    draws : xarray.DataTree or array_like, shape (..., 3)
        Draws of a unit vector in space.
    var_name : str, optional
        Name of the variable in the tree.
    group : str
        Group of the tree.
    label : str, optional
        Label in the legend.
    max_points : int
        Draws are thinned evenly to this number.
    ax : matplotlib.axes.Axes, optional
        Axes with the projection ``"3d"`` to draw into; a new figure by default.
    **scatter
        Passed to the ``scatter`` method of the axes.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ValueError
        If the draws are not vectors of length 3.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.datasets import make_vmf_mixture
    >>> from pymc_geodesic.diagnostics import plot_sphere_points
    >>> points, _ = make_vmf_mixture(np.eye(3), 50.0, 300, random_seed=1)
    >>> plot_sphere_points(points, label="mixture").name
    '3d'
    """
    points = directions(draws, var_name, 3, group)
    if len(points) > max_points:
        points = points[np.linspace(0, len(points) - 1, max_points).round().astype(int)]
    if ax is None:
        figure = pyplot().figure(figsize=(5, 5), layout="constrained")
        ax = figure.add_subplot(projection="3d")
        _wire_frame(ax)
    ax.scatter(*points.T, label=label, **({"s": 4} | scatter))
    if label is not None:
        ax.legend()
    return ax


def _wire_frame(ax: Any) -> None:
    """Draw the sphere itself and give all axes one scale."""
    longitude = np.linspace(0, 2 * np.pi, 2 * GRID_LINES + 1)
    latitude = np.linspace(0, np.pi, GRID_LINES + 1)
    ax.plot_wireframe(
        np.outer(np.cos(longitude), np.sin(latitude)),
        np.outer(np.sin(longitude), np.sin(latitude)),
        np.outer(np.ones_like(longitude), np.cos(latitude)),
        color="lightgrey",
        linewidth=0.5,
    )
    ax.set_box_aspect((1, 1, 1))
    ax.set(xlabel="x", ylabel="y", zlabel="z")
