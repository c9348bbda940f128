"""The variables that a diagnostic needs, out of the draws that it is given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from pymc_geodesic.arguments import check_count


def group_with(
    idata: Any, names: Sequence[str], takes: str, *, group: str = "posterior"
) -> xr.Dataset:
    """Return a group of draws that holds some variables, with chain and draw in front.

    Parameters
    ----------
    idata : xarray.DataTree
        What the user passed.
    names : sequence of str
        Variables that the group must hold.
    takes : str
        What the function takes, as a sentence without its end.
    group : str

    Raises
    ------
    ValueError
        If these are no draws, stacked draws, or draws of another model.

    Examples
    --------
    >>> import arviz as az
    >>> import numpy as np
    >>> from pymc_geodesic.diagnostics.draws import group_with
    >>> idata = az.from_dict({"posterior": {"x": np.ones((1, 4))}})
    >>> group_with(idata, ["mu"], "centre() takes draws of circle")
    Traceback (most recent call last):
    ValueError: centre() takes draws of circle, but the posterior holds no variable 'mu'
    """
    if not hasattr(idata, "children"):
        raise ValueError(f"{takes} first, as an xarray.DataTree; got {type(idata).__name__}")
    where = f"the {group}" if group == "posterior" else f"`{group}`"
    if group not in idata.children:
        raise ValueError(f"{takes}, but what was given has no group {group!r}")
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
    >>> from pymc_geodesic.diagnostics.draws import evenly_spaced
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
    """Return draws with chain and draw in front, one chain too where a selection left no axis.

    Raises
    ------
    ValueError
        If chains and draws are stacked.

    Examples
    --------
    >>> import numpy as np
    >>> import xarray as xr
    >>> from pymc_geodesic.diagnostics.draws import with_chains
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
