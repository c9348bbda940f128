"""The kinetic temperature of samplers without Metropolis correction."""

from typing import Literal

import arviz as az
import numpy as np
import pandas as pd
import xarray as xr
from arviz_base import convert_to_datatree


def temperature_summary(
    idata: xr.DataTree, *, tolerance: float = 0.1, fmt: Literal["wide", "xarray"] = "wide"
) -> pd.DataFrame | xr.Dataset:
    r"""Summarise the kinetic temperature of each chain.

    A sampler with velocity :math:`v` on a manifold of dimension :math:`m` leaves
    :math:`\mathbb{E}[v \cdot v / m] = 1` when its noise and its friction balance. Noise of the
    minibatch gradient that nothing accounts for raises the temperature :math:`T`, and the draws
    then spread about as if from :math:`\pi(x)^{1/T}`: intervals are too wide by about
    :math:`\sqrt{T}`.

    Parameters
    ----------
    idata : xarray.DataTree
        With ``sample_stats["temperature"]`` of dimensions (chain, draw, ...); the step methods
        with a velocity record it.
    tolerance : float
        A chain counts as off when its mean differs from 1 by more.
    fmt : {"wide", "xarray"}
        A table, or a data set with the dimension ``chain``.

    Returns
    -------
    pandas.DataFrame or xarray.Dataset
        Per chain (and per sampler, where several ran together): ``mean``, its Monte Carlo
        standard error ``mcse``, and the flag ``off``.

    Raises
    ------
    ValueError
        If no sampler recorded a temperature, or `fmt` is none of its choices.

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
    temperature = temperature_of(convert_to_datatree(idata))
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


def temperature_of(idata: xr.DataTree) -> xr.DataArray:
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
    >>> from pymc_geodesic.diagnostics.temperature import temperature_of
    >>> temperature_of(az.from_dict({"posterior": {"x": np.zeros((1, 4))}}))
    Traceback (most recent call last):
        ...
    ValueError: The sample stats hold no temperature: ...
    """
    if "sample_stats" not in idata.children or "temperature" not in idata["sample_stats"]:
        raise ValueError(
            "The sample stats hold no temperature: only samplers with a velocity, such as SGGMC "
            "and gSGNHT, record one."
        )
    return idata["sample_stats"].to_dataset()["temperature"]
