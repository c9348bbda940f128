"""Temperature along the chains."""

from typing import Any

import numpy as np
import xarray as xr
from arviz_base import convert_to_datatree

from pymc_geodesic.diagnostics.plots.canvas import new_axes
from pymc_geodesic.diagnostics.temperature import temperature_of


def plot_temperature(idata: xr.DataTree, *, tolerance: float = 0.1, ax: Any | None = None) -> Any:
    """Plot the temperature of each draw and its running mean, one colour per chain.

    Parameters
    ----------
    idata : xarray.DataTree
        With ``sample_stats["temperature"]``.
    tolerance : float
        Half-width of the band around 1 that is shaded.
    ax : matplotlib.axes.Axes, optional
        Axes to draw into; a new figure by default.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    ValueError
        If no sampler recorded a temperature.

    Examples
    --------
    >>> import arviz as az
    >>> import numpy as np
    >>> from pymc_geodesic.diagnostics import plot_temperature
    >>> values = np.random.default_rng(1).normal(1.0, 0.1, size=(2, 200))
    >>> idata = az.from_dict({"posterior": {"x": values}, "sample_stats": {"temperature": values}})
    >>> plot_temperature(idata).get_ylabel()
    'temperature'
    """
    temperature = temperature_of(convert_to_datatree(idata))
    ax = new_axes(ax, figsize=(7, 3.5))
    ax.axhspan(1 - tolerance, 1 + tolerance, color="lightgrey", alpha=0.6, label="tolerance")
    draw = temperature["draw"].values
    # With several samplers in one run each adds a dimension of its own.
    lines = temperature.stack(line=[dim for dim in temperature.dims if dim != "draw"])
    for index in range(lines.sizes["line"]):
        values = lines.isel(line=index).values
        mean = np.cumsum(values) / np.arange(1, len(values) + 1)
        (line,) = ax.plot(draw, mean, linewidth=2)
        ax.plot(draw, values, ".", markersize=2, alpha=0.3, color=line.get_color())
    ax.axhline(1.0, color="black", linewidth=0.8)
    ax.set(xlabel="draw", ylabel="temperature", title="each draw (dots) and running mean (lines)")
    ax.legend()
    return ax
