"""Summary table and ternary plot of proportions (compositional data)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import arviz as az
import numpy as np
import pandas as pd
import xarray as xr
from arviz_base import labels as arviz_labels

from pymc_geodesic.diagnostics.panels import COLORS, DARK, GRAY, LIGHT, Pen, draw, panels
from pymc_geodesic.diagnostics.posterior_draws import SAMPLE_DIMS
from pymc_geodesic.directional.density import kernel_density, thin
from pymc_geodesic.directional.direction_variables import rename_last, select_variables
from pymc_geodesic.directional.mean_direction import directional_mean, stack_batches, unit_rows
from pymc_geodesic.directional.projections import density_contour
from pymc_geodesic.directional.regions import (
    format_percent,
    highest_density_regions,
    resolve_probabilities,
    resolve_probability,
)

if TYPE_CHECKING:
    from arviz_plots import PlotCollection


def simplex_summary(
    idata: xr.DataTree,
    var_names: str | Sequence[str] | None = None,
    *,
    group: str = "posterior",
    coords: Mapping[Any, Any] | None = None,
    sample_dims: str | Sequence[str] | None = None,
    ci_prob: float | None = None,
    round_to: int | None = None,
) -> pd.DataFrame:
    r"""Summarize proportions that sum to one, one row per component, in descending order.

    The columns are:

    ``mean``, ``sd``, ``hdi89_lb``, ``hdi89_ub``
        Of the proportion; 89 is `ci_prob` in percent, ArviZ's default. The means of one simplex
        sum to one.
    ``rank``
        Posterior mean of the rank among the components, 1 for the largest.
    ``p_largest``
        Probability that no component is larger.
    ``ess_bulk``, ``r_hat``
        Of the proportion.

    Parameters
    ----------
    idata : xarray.DataTree
        Draws with the dimensions ``chain`` and ``draw``.
    var_names : str or sequence of str, optional
        Variables that sum to one along the last dimension; by default all, see
        `direction_variables`.
    group : str
        Group of the tree.
    coords : mapping, optional
        Labels to select along dimensions, as in ArviZ.
    sample_dims : str or sequence of str, optional
        Dimensions of the draws; see `direction_variables`.
    ci_prob : float, optional
        Probability of the intervals; ``rcParams["stats.ci_prob"]`` by default.
    round_to : int, optional
        Number of decimals.

    Returns
    -------
    pandas.DataFrame
        Rows are named as in `arviz.summary`.

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
    prob = resolve_probability(ci_prob)
    variables = select_variables(idata, var_names, group, coords, sample_dims, kinds=("simplex",))
    tables = [
        _summarize_simplex(each, prob, f"hdi{format_percent(prob)}")
        for variable in variables.values()
        for each in _split_simplices(variable)
    ]
    table = pd.concat(tables)
    return table if round_to is None else table.round(round_to)


def _split_simplices(variable: xr.DataArray) -> list[xr.DataArray]:
    """Split a variable into its simplices, shape (chain, draw, label)."""
    label = variable.dims[-1]
    others = [dim for dim in variable.dims if dim not in (*SAMPLE_DIMS, label)]
    if not others:
        return [variable]
    flat = variable.stack(simplex_=others, create_index=False)
    return [flat.isel(simplex_=i) for i in range(flat.sizes["simplex_"])]


def _summarize_simplex(variable: xr.DataArray, prob: float, interval: str) -> pd.DataFrame:
    variable = variable.transpose(*SAMPLE_DIMS, ...)
    draws = stack_batches(variable, 1)[0]
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


CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(0.75)]])
"""Vertices of the triangle in the plane."""


def plot_ternary(
    idata: xr.DataTree,
    var_names: str | Sequence[str] | None = None,
    *,
    group: str = "posterior",
    coords: Mapping[Any, Any] | None = None,
    sample_dims: str | Sequence[str] | None = None,
    max_points: int = 1000,
    ci_probs: float | Sequence[float] | None = None,
    backend: str | None = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    r"""Ternary plot of three proportions, with highest-density regions.

    A proportion is the distance from the side opposite to its vertex. Densities are with respect
    to the area on the sphere of :math:`\sqrt p`, on which :math:`2 \arccos \sum_k \sqrt{p_k q_k}`
    is the Fisher–Rao distance, so that regions can contain edges and vertices.

    Parameters
    ----------
    idata : xarray.DataTree
        Draws.
    var_names : str or sequence of str, optional
        Variables of three proportions that sum to one along the last dimension; by default all,
        see `direction_variables`.
    group : str
        Group of the tree.
    coords : mapping, optional
        Labels to select along dimensions, as in ArviZ.
    sample_dims : str or sequence of str, optional
        Dimensions of the draws; see `direction_variables`.
    max_points : int
        Draws are thinned evenly to this number.
    ci_probs : float or sequence of float, optional
        Probabilities of the highest-density regions; 0.5 and ``rcParams["stats.ci_prob"]`` by
        default, none with ``()``.
    backend : {"matplotlib", "plotly", "bokeh"}, optional
        ``rcParams["plot.backend"]`` by default.
    **pc_kwargs
        Arguments ``figure_kwargs`` and ``col_wrap`` of ``arviz_plots.PlotCollection.wrap``.

    Returns
    -------
    arviz_plots.PlotCollection

    Raises
    ------
    ImportError
        If the back end is not installed.
    ValueError
        If there is no such variable.

    Examples
    --------
    >>> import arviz as az
    >>> import numpy as np
    >>> from pymc_geodesic.directional import plot_ternary
    >>> share = np.random.default_rng(1).dirichlet([10.0, 50.0, 40.0], size=(2, 100))
    >>> plot_ternary(az.from_dict({"posterior": {"share": share}})).backend
    'matplotlib'
    """
    probs = resolve_probabilities(ci_probs)
    variables = select_variables(
        idata, var_names, group, coords, sample_dims, kinds=("simplex",), length=3
    )
    names = {name: corner_names(each) for name, each in variables.items()}
    data = xr.Dataset({name: rename_last(each) for name, each in variables.items()})
    collection = panels(data, backend, core=("component_",), **pc_kwargs)

    def panel(pen: Pen, part: xr.DataArray, name: str) -> None:
        proportions = part.transpose(..., "component_").values.reshape(-1, 3)
        _draw_triangle(pen, names[str(part.name)])
        plane = thin(proportions, max_points) @ CORNERS
        pen.points(plane[:, 0], plane[:, 1], color=COLORS[0], alpha=0.35)
        for index, line in enumerate(ternary_contours(proportions, sorted(probs))):
            plane = line @ CORNERS
            pen.line(plane[:, 0], plane[:, 1], color=COLORS[2], width=2.5 - index)
        mean = proportions.mean(axis=0) @ CORNERS
        pen.points(mean[:1], mean[1:], color=DARK, size=7.0)
        regions = " and ".join(f"{prob:.0%}" for prob in sorted(probs))
        pen.title(name + (f": {regions} regions" if regions else ""))

    draw(collection, "ternary", panel)
    return collection


def ternary_contours(proportions: np.ndarray, probs: Sequence[float]) -> list[np.ndarray]:
    """Return contours of highest-density regions of three proportions, in segments and NaN.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.directional.compositions import ternary_contours
    >>> proportions = np.random.default_rng(1).dirichlet([9.0, 9.0, 9.0], size=200)
    >>> line = ternary_contours(proportions, [0.9])[0]
    >>> bool(np.allclose(np.nansum(line, axis=1)[::3], 1.0))
    True
    """
    if not probs:
        return []
    roots = unit_rows(np.sqrt(np.maximum(proportions, 0.0)))
    density = kernel_density(roots)
    middle = directional_mean(roots, False).mean
    lines = []
    for region in highest_density_regions(density, roots, probs):
        segments = density_contour(density, region.level, middle).reshape(-1, 3, 3)
        within = (segments[:, :2] >= 0).all(axis=(1, 2))
        lines.append((segments[within] ** 2).reshape(-1, 3))
    return lines


def corner_names(variable: xr.DataArray) -> list[str]:
    """Return the labels of the three components, or their indices."""
    label = variable.dims[-1]
    if label in variable.coords:
        return [str(each) for each in variable[label].values]
    return ["0", "1", "2"]


def _draw_triangle(pen: Pen, names: Sequence[str]) -> None:
    """Draw the triangle with its grid and labels."""
    for proportion in (0.2, 0.4, 0.6, 0.8):
        for corner in range(3):
            ends = np.zeros((2, 3))
            ends[:, corner] = proportion
            ends[0, corner - 1] = ends[1, corner - 2] = 1.0 - proportion
            plane = ends @ CORNERS
            pen.line(plane[:, 0], plane[:, 1], color=LIGHT, width=0.6)
    rim = CORNERS[[0, 1, 2, 0]]
    pen.line(rim[:, 0], rim[:, 1], color=GRAY, width=1.2)
    for name, corner, down in zip(names, CORNERS, (-0.06, -0.06, 0.06), strict=True):
        pen.text(float(corner[0]), float(corner[1] + down), name)
    pen.equal_axes((-0.12, 1.12), (-0.16, 1.0))
