"""What all plots share: a lazy matplotlib and draws as arrays."""

from types import ModuleType
from typing import Any

import numpy as np
import xarray as xr
from arviz_base import convert_to_datatree


def pyplot() -> ModuleType:
    """Import matplotlib when a plot is asked for, not with the package.

    Returns
    -------
    module
        ``matplotlib.pyplot``.

    Examples
    --------
    >>> from pymc_geodesic.diagnostics.plots.canvas import pyplot
    >>> pyplot().__name__
    'matplotlib.pyplot'
    """
    import matplotlib.pyplot as plt

    return plt


def new_axes(ax: Any | None, **options: Any) -> Any:
    """Return the given axes, or those of a new figure.

    Parameters
    ----------
    ax : matplotlib.axes.Axes or None
        Axes to draw into.
    **options
        Passed to ``matplotlib.pyplot.subplots``.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> from pymc_geodesic.diagnostics.plots.canvas import new_axes
    >>> ax = new_axes(None, figsize=(3, 2))
    >>> new_axes(ax) is ax
    True
    """
    if ax is not None:
        return ax
    return pyplot().subplots(layout="constrained", **options)[1]


def directions(
    draws: xr.DataTree | np.ndarray, var_name: str | None, dimension: int, group: str = "posterior"
) -> np.ndarray:
    """Return draws of a unit vector as rows.

    Parameters
    ----------
    draws : xarray.DataTree or array_like, shape (..., d)
        Draws with the variable `var_name`, or bare points.
    var_name : str or None
        Name of the variable; required for a tree.
    dimension : int
        The d that the plot can show.
    group : str
        Group of the tree to look in.

    Returns
    -------
    numpy.ndarray, shape (n, d)

    Raises
    ------
    ValueError
        If the variable is missing or does not hold vectors of this length.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.diagnostics.plots.canvas import directions
    >>> directions(np.ones((4, 5, 2)), None, 2).shape
    (20, 2)
    """
    if isinstance(draws, np.ndarray | list | tuple):
        points = np.asarray(draws, dtype=np.float64)
    else:
        tree = convert_to_datatree(draws)
        if group not in tree.children or var_name not in tree[group].data_vars:
            raise ValueError(f"The group {group!r} holds no variable {var_name!r}.")
        points = tree[group].to_dataset()[var_name].values
    if points.shape[-1:] != (dimension,):
        raise ValueError(
            f"This plot shows vectors of length {dimension}; the last axis of the draws has the "
            f"shape {points.shape[-1:]}."
        )
    return points.reshape(-1, dimension)
