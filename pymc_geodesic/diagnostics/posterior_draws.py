"""Posterior draws as arguments of diagnostics and plots, and their autocorrelation times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from pymc_geodesic.arguments import check_count


def group_with(
    idata: Any, names: Sequence[str], takes: str, *, group: str = "posterior"
) -> xr.Dataset:
    """Return a group that contains some variables, with chain and draw in front.

    Parameters
    ----------
    idata : xarray.DataTree
        Draws.
    names : sequence of str
        Variables that the group must contain.
    takes : str
        Beginning of the error message: which draws the function requires.
    group : str

    Raises
    ------
    ValueError
        If it is not a DataTree, draws are stacked, or the group or a variable is missing.

    Examples
    --------
    >>> import arviz as az
    >>> import numpy as np
    >>> from pymc_geodesic.diagnostics.posterior_draws import group_with
    >>> idata = az.from_dict({"posterior": {"x": np.ones((1, 4))}})
    >>> group_with(idata, ["mu"], "center() takes draws of circle")
    Traceback (most recent call last):
    ValueError: center() takes draws of circle, but the posterior holds no variable 'mu'
    """
    if not hasattr(idata, "children"):
        raise ValueError(f"{takes} first, as an xarray.DataTree; got {type(idata).__name__}")
    where = f"the {group}" if group == "posterior" else f"`{group}`"
    if group not in idata.children:
        raise ValueError(f"{takes}, but `idata` has no group {group!r}")
    found = idata[group].to_dataset()
    missing = [name for name in names if name not in found.data_vars]
    if missing:
        raise ValueError(f"{takes}, but {where} holds no variable {missing[0]!r}")
    return with_chains(found)


def evenly_spaced(n_draws: int | None, total: int) -> np.ndarray:
    """Return indices of `n_draws` of `total` draws at equal distances, of all draws by default.

    Raises
    ------
    ValueError
        If `n_draws` is not an integer between 1 and `total`.

    Examples
    --------
    >>> from pymc_geodesic.diagnostics.posterior_draws import evenly_spaced
    >>> evenly_spaced(3, 8)
    array([0, 4, 7])
    """
    if n_draws is None:
        return np.arange(total)
    check_count("n_draws", n_draws)
    if n_draws > total:
        raise ValueError(f"n_draws={n_draws} exceeds the {total} draws. Omit it to use all draws.")
    return np.linspace(0, total - 1, n_draws).round().astype(int)


SAMPLE_DIMS = ("chain", "draw")


def with_chains(draws: xr.Dataset) -> xr.Dataset:
    """Transpose draws to (chain, draw, ...); restore a dimension that a selection dropped.

    Raises
    ------
    ValueError
        If chains and draws are stacked.

    Examples
    --------
    >>> import numpy as np
    >>> import xarray as xr

    from pymc_geodesic.arguments import check_count
    >>> from pymc_geodesic.diagnostics.posterior_draws import with_chains
    >>> draws = xr.Dataset({"x": (("chain", "draw"), np.zeros((2, 5)))}, {"chain": [0, 1]})
    >>> dict(with_chains(draws.sel(chain=1)).sizes)
    {'chain': 1, 'draw': 5}
    """
    if "sample" in draws.dims and not set(SAMPLE_DIMS) & set(draws.dims):
        raise ValueError(
            "chains and draws are stacked along 'sample', as by arviz.extract. Pass the DataTree "
            "that pm.sample returned, or a selection such as idata.isel(draw=slice(0, None, 10))."
        )
    for dim in reversed(SAMPLE_DIMS):
        if dim in draws.coords and dim not in draws.dims:
            draws = draws.expand_dims(dim)
    return draws.transpose(*SAMPLE_DIMS, ..., missing_dims="ignore")


def autocorrelation_times(values: np.ndarray) -> np.ndarray:
    """Integrated autocorrelation times of several series within their chains.

    τ = 1 + 2 Σ ρ_t, truncated where the sum of two consecutive ρ becomes negative (Geyer 1992).
    Each chain is centered at its own mean.

    Parameters
    ----------
    values : ndarray, shape (chain, draw, n)

    Returns
    -------
    ndarray, shape (n,)
        At least 1.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.diagnostics.posterior_draws import autocorrelation_times
    >>> noise = np.random.default_rng(1).normal(size=(4, 1000, 1))
    >>> bool(autocorrelation_times(noise)[0] < 1.2)
    True
    """
    n_draws = values.shape[1]
    centered = values - values.mean(axis=1, keepdims=True)
    length = 2 ** math.ceil(math.log2(2 * n_draws))
    spectrum = np.abs(np.fft.rfft(centered, length, axis=1)) ** 2
    covariance = np.fft.irfft(spectrum.mean(axis=0), length, axis=0)[:n_draws]
    correlation = covariance / np.maximum(covariance[0], 1e-300)
    pairs = correlation[: n_draws // 2 * 2].reshape(-1, 2, correlation.shape[1]).sum(axis=1)
    positive = np.logical_and.accumulate(pairs > 0.0, axis=0)
    times = 2.0 * np.sum(np.where(positive, pairs, 0.0), axis=0) - 1.0
    return np.maximum(times, 1.0)
