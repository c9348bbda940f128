"""Groups of draws with the dimensions chain and draw, whatever users selected of them."""

from __future__ import annotations

import xarray as xr

__all__ = ["with_chains"]

SAMPLE_DIMS = ("chain", "draw")


def with_chains(draws: xr.Dataset) -> xr.Dataset:
    """Return draws with chain and draw in front, one chain too where a selection left no axis.

    Raises
    ------
    ValueError
        If chains and draws are stacked.

    Examples
    --------
    >>> import numpy as np
    >>> import xarray as xr
    >>> from pymc_geodesic.diagnostics.sampled import with_chains
    >>> draws = xr.Dataset({"x": (("chain", "draw"), np.zeros((2, 5)))}, {"chain": [0, 1]})
    >>> dict(with_chains(draws.sel(chain=1)).sizes)
    {'chain': 1, 'draw': 5}
    """
    if "sample" in draws.dims and not set(SAMPLE_DIMS) & set(draws.dims):
        raise ValueError(
            "chains and draws are stacked along 'sample', as arviz.extract does it; pass what "
            "pm.sample returned, or a selection such as idata.isel(draw=slice(0, None, 10))"
        )
    for dim in reversed(SAMPLE_DIMS):
        if dim in draws.coords and dim not in draws.dims:
            draws = draws.expand_dims(dim)
    return draws.transpose(*SAMPLE_DIMS, ..., missing_dims="ignore")
