"""Kinetic temperature of samplers without Metropolis correction: summary and plot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import arviz as az
import numpy as np
import pandas as pd
import xarray as xr
from arviz_base import convert_to_datatree

from pymc_geodesic.diagnostics.panels import COLORS, DARK, LIGHT, Pen, draw, panels

if TYPE_CHECKING:
    from arviz_plots import PlotCollection


def temperature_summary(
    idata: xr.DataTree, *, tolerance: float = 0.1, fmt: Literal["wide", "xarray"] = "wide"
) -> pd.DataFrame | xr.Dataset:
    r"""Summarize the kinetic temperature of each chain.

    The kinetic temperature of a sampler with velocity :math:`v` on a manifold of dimension
    :math:`m` is the mean of :math:`v \cdot v / m`, for `SGGMC` and `gSGNHT` corrected for the step
    size. It is 1 if noise and friction balance. Gradient noise of minibatches that is not
    compensated raises the temperature :math:`T`. The draws are then
    approximately from :math:`\pi(x)^{1/T}`, and intervals too wide by a factor of about
    :math:`\sqrt{T}`.

    Parameters
    ----------
    idata : xarray.DataTree
        With ``sample_stats["temperature"]`` of dimensions (chain, draw, ...); the step methods
        with a velocity record it.
    tolerance : float
        A chain is flagged if its mean differs from 1 by more.
    fmt : {"wide", "xarray"}
        Data frame, or data set with the dimension ``chain``.

    Returns
    -------
    pandas.DataFrame or xarray.Dataset
        Per chain (and per sampler, if there are several): ``mean``, its Monte Carlo
        standard error ``mcse``, and the flag ``off``.

    Raises
    ------
    ValueError
        If no sampler recorded a temperature, or `fmt` is invalid.

    Examples
    --------
    >>> import arviz as az
    >>> import numpy as np
    >>> from pymc_geodesic.diagnostics import temperature_summary
    >>> values = np.random.default_rng(1).normal([[1.0], [1.3]], 0.1, size=(2, 200))
    >>> idata = az.from_dict({"posterior": {"x": values}, "sample_stats": {"temperature": values}})
    >>> temperature_summary(idata).round(2)
           mean  mcse    off
    chain
    0      0.99  0.01  False
    1      1.29  0.01   True
    """
    if fmt not in ("wide", "xarray"):
        raise ValueError(f"`fmt` must be 'wide' or 'xarray', got {fmt!r}.")
    temperature = get_temperature(convert_to_datatree(idata))
    mean = temperature.mean("draw")
    summary = xr.Dataset(
        {
            "mean": mean,
            "mcse": az.mcse(temperature, sample_dims="draw"),
            "off": np.abs(mean - 1.0) > tolerance,
        }
    )
    if fmt == "xarray":
        return summary
    table = summary.to_dataframe()
    return table.rename_axis(["chain", "sampler"]) if table.index.nlevels > 1 else table


def get_temperature(idata: xr.DataTree) -> xr.DataArray:
    """Return ``sample_stats["temperature"]``.

    Parameters
    ----------
    idata : xarray.DataTree
        Draws.

    Returns
    -------
    xarray.DataArray
        Dimensions (chain, draw, ...).

    Raises
    ------
    ValueError
        If no sampler recorded a temperature.

    Examples
    --------
    >>> import arviz as az
    >>> import numpy as np
    >>> from pymc_geodesic.diagnostics.temperature import get_temperature
    >>> get_temperature(az.from_dict({"posterior": {"x": np.zeros((1, 4))}}))
    Traceback (most recent call last):
        ...
    ValueError: The sample stats contain no temperature: ...
    """
    if "sample_stats" not in idata.children or "temperature" not in idata["sample_stats"]:
        raise ValueError(
            "The sample stats contain no temperature: only samplers with a velocity, such as SGGMC "
            "and gSGNHT, record one."
        )
    return idata["sample_stats"].to_dataset()["temperature"]


def plot_temperature(
    idata: xr.DataTree, *, tolerance: float = 0.1, backend: str | None = None, **pc_kwargs: Any
) -> PlotCollection:
    """Plot the temperature of each draw and its running mean, one color per chain.

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
        ``.savefig`` writes it, ``.get_target("temperature", {})`` returns its panel.

    Raises
    ------
    ImportError
        If the backend is not installed.
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
    temperature = get_temperature(convert_to_datatree(idata))
    others = tuple(str(dim) for dim in temperature.dims if dim not in ("chain", "draw"))
    data = xr.Dataset({"temperature": temperature})
    collection = panels(data, backend, core=others, size=(700, 350), **pc_kwargs)

    def panel(pen: Pen, part: xr.DataArray, _: str) -> None:
        steps = part["draw"].values
        pen.area(steps[[0, -1, -1, 0]], 1.0 + tolerance * np.array([-1, -1, 1, 1]), color=LIGHT,
                 alpha=0.6)  # fmt: skip
        # Several samplers add a dimension.
        lines = part.transpose(..., "draw").values.reshape(-1, len(steps))
        for index, values in enumerate(lines):
            color = COLORS[index % len(COLORS)]
            pen.points(steps, values, color=color, size=2.0, alpha=0.3)
            pen.line(steps, np.cumsum(values) / np.arange(1, len(values) + 1), color=color, width=2)
        pen.line(steps[[0, -1]], [1.0, 1.0], color=DARK, width=0.8)
        pen.labels("draw", "temperature")
        pen.title("each draw (dots) and running mean (lines)")

    draw(collection, "temperature", panel)
    return collection
