"""A table of shares, the largest first."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import arviz as az
import numpy as np
import pandas as pd
import xarray as xr
from arviz_base import labels as arviz_labels

from pymc_geodesic.diagnostics.draws import SAMPLE_DIMS
from pymc_geodesic.directional.kinds import chosen
from pymc_geodesic.directional.mean_direction import as_batches
from pymc_geodesic.directional.regions import percent, probability


def simplex_summary(
    idata: xr.DataTree,
    var_names: str | Sequence[str] | None = None,
    *,
    ci_prob: float | None = None,
    group: str = "posterior",
    round_to: int | None = None,
) -> pd.DataFrame:
    r"""Summarise shares of a whole: the labels of each simplex, the largest share first.

    ``mean``, ``sd``, ``hdi89_lb``, ``hdi89_ub``
        Of the share of a label; 89 is `ci_prob` in percent, ArviZ's default. The means of one
        simplex sum to one.
    ``rank``
        Posterior mean of its place among the labels, 1 for the largest share.
    ``p_largest``
        Probability that no label has a larger share.
    ``ess_bulk``, ``r_hat``
        Of the share.

    Parameters
    ----------
    idata : xarray.DataTree
        Draws with the dimensions ``chain`` and ``draw``.
    var_names : str or sequence of str, optional
        Variables that sum to one along the last dimension; by default all, see
        `direction_variables`.
    ci_prob : float, optional
        Probability of the intervals; ``rcParams["stats.ci_prob"]`` by default.
    group : str
        Group of the tree.
    round_to : int, optional
        Decimals.

    Returns
    -------
    pandas.DataFrame
        One row for each label, named as in `arviz.summary`.

    Raises
    ------
    ValueError
        If there is no such variable.

    Examples
    --------
    >>> import arviz as az
    >>> import numpy as np
    >>> from pymc_geodesic.directional import simplex_summary
    >>> share = np.random.default_rng(1).dirichlet([10.0, 50.0, 40.0], size=(2, 500))
    >>> idata = az.from_dict(
    ...     {"posterior": {"share": share}},
    ...     dims={"share": ["party"]},
    ...     coords={"party": ["red", "green", "blue"]},
    ... )
    >>> simplex_summary(idata)[["mean", "rank", "p_largest"]].round(1)
                  mean  rank  p_largest
    share[green]   0.5   1.1        0.9
    share[blue]    0.4   1.9        0.1
    share[red]     0.1   3.0        0.0
    """
    prob = probability(ci_prob)
    tables = [
        _of_simplex(each, prob, f"hdi{percent(prob)}")
        for variable in chosen(idata, var_names, ("simplex",), group=group).values()
        for each in _one_by_one(variable)
    ]
    table = pd.concat(tables)
    return table if round_to is None else table.round(round_to)


def _one_by_one(variable: xr.DataArray) -> list[xr.DataArray]:
    """Split a variable into its simplices, shape (chain, draw, label)."""
    label = variable.dims[-1]
    others = [dim for dim in variable.dims if dim not in (*SAMPLE_DIMS, label)]
    if not others:
        return [variable]
    flat = variable.stack(simplex_=others, create_index=False)
    return [flat.isel(simplex_=i) for i in range(flat.sizes["simplex_"])]


def _of_simplex(variable: xr.DataArray, prob: float, interval: str) -> pd.DataFrame:
    variable = variable.transpose(*SAMPLE_DIMS, ...)
    draws = as_batches(variable, 1)[0]
    rank = 1 + (draws[..., None, :] > draws[..., :, None]).sum(axis=-1)
    hdi = az.hdi(variable, prob=prob)
    label = variable.dims[-1]
    table = pd.DataFrame(
        {
            "mean": draws.mean(axis=(0, 1)),
            "sd": draws.std(axis=(0, 1)),
            f"{interval}_lb": hdi.isel(ci_bound=0).values,
            f"{interval}_ub": hdi.isel(ci_bound=1).values,
            "rank": rank.mean(axis=(0, 1)),
            "p_largest": (rank == 1).mean(axis=(0, 1)),
            "ess_bulk": az.ess(variable).values,
            "r_hat": az.rhat(variable).values,
        },
        index=_row_names(variable, label),
    )
    return table.sort_values("mean", ascending=False, kind="stable")


def _row_names(variable: xr.DataArray, label: Hashable) -> list[str]:
    fixed: dict[str, Any] = {
        str(dim): value.item()
        for dim, value in variable.coords.items()
        if dim not in SAMPLE_DIMS and value.ndim == 0
    }
    labels = variable[label].values if label in variable.coords else np.arange(variable.shape[-1])
    labeller = arviz_labels.BaseLabeller()
    return [
        labeller.make_label_flat(str(variable.name), selection, selection)
        for selection in ({**fixed, str(label): each} for each in labels)
    ]
