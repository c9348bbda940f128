"""Temperature along the chains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from arviz_base import convert_to_datatree

from pymc_geodesic.diagnostics.plots.panels import COLOURS, DARK, LIGHT, Pen, draw, panels
from pymc_geodesic.diagnostics.temperature import temperature_of

if TYPE_CHECKING:
    from arviz_plots import PlotCollection


def plot_temperature(
    idata: xr.DataTree, *, tolerance: float = 0.1, backend: str | None = None, **pc_kwargs: Any
) -> PlotCollection:
    """Plot the temperature of each draw and its running mean, one colour per chain.

    Parameters
    ----------
    idata : xarray.DataTree
        With ``sample_stats["temperature"]``.
    tolerance : float
        Half-width of the band around 1 that is shaded.
    backend : {"matplotlib", "plotly", "bokeh"}, optional
        ``rcParams["plot.backend"]`` by default.
    **pc_kwargs
        Arguments ``figure_kwargs`` and ``col_wrap`` of ``arviz_plots.PlotCollection.wrap``.

    Returns
    -------
    arviz_plots.PlotCollection
        ``.savefig`` writes it, ``.get_target("temperature", {})`` is its panel.

    Raises
    ------
    ImportError
        If the back end is not installed.
    ValueError
        If no sampler recorded a temperature.

    Examples
    --------
    >>> import arviz as az
    >>> import numpy as np
    >>> from pymc_geodesic.diagnostics import plot_temperature
    >>> values = np.random.default_rng(1).normal(1.0, 0.1, size=(2, 200))
    >>> idata = az.from_dict({"posterior": {"x": values}, "sample_stats": {"temperature": values}})
    >>> plot_temperature(idata).get_target("temperature", {}).get_ylabel()
    'temperature'
    """
    temperature = temperature_of(convert_to_datatree(idata))
    others = tuple(str(dim) for dim in temperature.dims if dim not in ("chain", "draw"))
    data = xr.Dataset({"temperature": temperature})
    collection = panels(data, backend, core=others, size=(700, 350), **pc_kwargs)

    def panel(pen: Pen, part: xr.DataArray, _: str) -> None:
        steps = part["draw"].values
        pen.area(steps[[0, -1, -1, 0]], 1.0 + tolerance * np.array([-1, -1, 1, 1]), color=LIGHT,
                 alpha=0.6)  # fmt: skip
        # With several samplers in one run each adds a dimension of its own.
        lines = part.transpose(..., "draw").values.reshape(-1, len(steps))
        for index, values in enumerate(lines):
            color = COLOURS[index % len(COLOURS)]
            pen.points(steps, values, color=color, size=2.0, alpha=0.3)
            pen.line(steps, np.cumsum(values) / np.arange(1, len(values) + 1), color=color, width=2)
        pen.line(steps[[0, -1]], [1.0, 1.0], color=DARK, width=0.8)
        pen.labels("draw", "temperature")
        pen.title("each draw (dots) and running mean (lines)")

    draw(collection, "temperature", panel)
    return collection
