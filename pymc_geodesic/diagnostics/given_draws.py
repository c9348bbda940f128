"""The variables that a diagnostic needs, out of the draws that it is given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import xarray as xr

__all__ = ["group_with"]


def group_with(
    idata: Any, names: Sequence[str], takes: str, *, group: str = "posterior"
) -> xr.Dataset:
    """Return a group of draws that holds some variables.

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
        If these are no draws, or of another model.

    Examples
    --------
    >>> import arviz as az
    >>> import numpy as np
    >>> from pymc_geodesic.diagnostics.given_draws import group_with
    >>> idata = az.from_dict({"posterior": {"x": np.ones((1, 4))}})
    >>> group_with(idata, ["mu"], "centre() takes draws of models.circle")
    Traceback (most recent call last):
    ValueError: centre() takes draws of models.circle, but the posterior holds no variable 'mu'
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
    return found
