"""Densities on the circle."""

from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr

from pymc_geodesic.diagnostics.plots.canvas import directions, new_axes


def plot_circle_density(
    draws: xr.DataTree | np.ndarray,
    var_name: str | None = None,
    *,
    density: Callable[[np.ndarray], np.ndarray] | None = None,
    bins: int = 63,
    group: str = "posterior",
    label: str | None = None,
    ax: Any | None = None,
) -> Any:
    """Plot the angles of draws on the circle, beside a density where one is known.

    Parameters
    ----------
    draws : xarray.DataTree or array_like, shape (..., 2)
        Draws of a unit vector in the plane.
    var_name : str, optional
        Name of the variable in the tree.
    density : callable, optional
        Density with respect to the angle in radians, vectorised; it is scaled to integrate to 1.
    bins : int
        Number of bins around the circle; the default is near the width 0.1 of the SGGMC
        paper's toy experiment.
    group : str
        Group of the tree.
    label : str, optional
        Label of the draws in the legend.
    ax : matplotlib.axes.Axes, optional
        Axes to draw into; a new figure by default. Several calls with the same axes compare
        samplers.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    ValueError
        If the draws are not vectors of length 2.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.datasets import make_shared_mean_mixture
    >>> from pymc_geodesic.diagnostics import plot_circle_density
    >>> ax = plot_circle_density(make_shared_mean_mixture(random_seed=1), bins=20)
    >>> ax.get_xlabel()
    'angle (radians)'
    """
    points = directions(draws, var_name, 2, group)
    ax = new_axes(ax, figsize=(6, 3.5))
    angle = np.arctan2(points[:, 1], points[:, 0])
    height, edges = np.histogram(angle, bins=bins, range=(-np.pi, np.pi), density=True)
    ax.stairs(height, edges, fill=True, alpha=0.4, label=label or "draws")
    if density is not None:
        grid = np.linspace(-np.pi, np.pi, 1001)
        value = density(grid)
        ax.plot(grid, value / np.trapezoid(value, grid), color="black", label="density")
    ax.set(xlabel="angle (radians)", ylabel="density", xlim=(-np.pi, np.pi))
    ax.set_ylim(bottom=0)
    ax.set_xticks([-np.pi, -np.pi / 2, 0, np.pi / 2, np.pi], ["-π", "-π/2", "0", "π/2", "π"])
    ax.legend()
    return ax
