"""A table of directions, as `arviz.summary` is one of numbers."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Literal, NamedTuple

import arviz as az
import numpy as np
import pandas as pd
import xarray as xr
from arviz_base import dataset_to_dataframe

from pymc_geodesic.diagnostics.draws import SAMPLE_DIMS
from pymc_geodesic.directional.coordinates import (
    to_declination_inclination,
    to_lonlat,
    units_per_radian,
)
from pymc_geodesic.directional.kinds import chosen
from pymc_geodesic.directional.mean_direction import (
    Centre,
    as_batches,
    centre_of,
    check_axial,
    frame_centre,
    is_axial,
    to_side,
)
from pymc_geodesic.directional.regions import (
    cap_around,
    directional_hdi,
    directional_hdr,
    frame_cap,
    percent,
    probability,
)

COORDINATES = ("lonlat", "declination_inclination", "vector")


class _Wishes(NamedTuple):
    """What the caller of `directional_summary` wants to see."""

    prob: float
    unit: Literal["deg", "rad"]
    coordinates: str
    axial: bool | str | Sequence[str] | None
    hdr: bool

    @property
    def percent(self) -> str:
        return percent(self.prob)


def directional_summary(
    idata: xr.DataTree,
    var_names: str | Sequence[str] | None = None,
    unit: Literal["deg", "rad"] = "deg",
    *,
    coordinates: Literal["lonlat", "declination_inclination", "vector"] = "lonlat",
    ci_prob: float | None = None,
    axial: bool | str | Sequence[str] | None = None,
    angles: str | Sequence[str] = (),
    hdr: bool = True,
    group: str = "posterior",
    fmt: Literal["wide", "xarray"] = "wide",
    round_to: int | None = None,
) -> pd.DataFrame | xr.Dataset:
    r"""Summarise directions, axes, angles and orthonormal frames; one row for each.

    ``lon``, ``lat``, or ``declination``, ``inclination``, or ``angle``, or ``x0``, ``x1``, …
        The mean direction :math:`m = \bar x / \lVert\bar x\rVert`, or the principal axis, in the
        plane from −90° to 90°. Vectors of more than three components are written out with
        ``coordinates="vector"`` alone.
    ``resultant_length``, ``spherical_variance``
        :math:`\bar R = \lVert\bar x\rVert`, of axes after the draws are turned to one side, and
        :math:`1 - \bar R` (Mardia and Jupp 2000, sections 2.3 and 9.2; others use twice that on
        the sphere). For frames :math:`\operatorname{tr} S / p`, S the singular values of the
        mean matrix.
    ``cap89_radius``
        Radius of the geodesic cap around m that holds 89 % of the draws, `ci_prob` in percent;
        `credible_cap`. For frames the angle :math:`\arccos(\operatorname{tr}(X^\top M) / p)`.
    ``arc89_lb``, ``arc89_ub``
        In the plane, the shortest arc; `directional_hdi`.
    ``hdr89_arc``, or ``hdr89_sr`` and ``hdr89_deg2``
        Length in the plane, or area in space, of the highest-density region, of axes on both sides;
        `directional_hdr`.
    ``ess_bulk_min``, ``ess_tail_min``, ``r_hat_max``
        The worst over the components of the vector and :math:`x \cdot m`, never of angles, which
        jump by a turn. Axes are turned to one side first.

    Parameters
    ----------
    idata : xarray.DataTree
        Draws with the dimensions ``chain`` and ``draw``.
    var_names : str or sequence of str, optional
        Variables; by default all that are directions, angles or frames by the rule of
        `direction_variables`.
    unit : {"deg", "rad"}
        Unit of all angles. Areas are given in steradians and in square degrees.
    coordinates : {"lonlat", "declination_inclination", "vector"}
        How to write mean directions in space.
    ci_prob : float, optional
        Probability of the regions; ``rcParams["stats.ci_prob"]`` by default.
    axial : bool, str, sequence of str or None
        Whether x and −x are the same, for all directions or those named. None decides, with a
        warning, where the first moment vanishes (length below 0.1) and the second shows an axis.
    angles : str or sequence of str
        Variables that are angles in radians.
    hdr : bool
        Whether to find highest-density regions, which takes about half a second for each direction.
    group : str
        Group of the tree.
    fmt : {"wide", "xarray"}
        A data frame, or a data set with the dimension ``summary`` whose columns have other names
        than those of ``arviz.summary(fmt="xarray")``, so that `xarray.merge` puts both together.
    round_to : int, optional
        Decimals.

    Returns
    -------
    pandas.DataFrame or xarray.Dataset

    Raises
    ------
    ValueError
        If there is no such variable, or none that `axial` names, or an argument is none of its
        choices.

    Examples
    --------
    >>> import arviz as az
    >>> import numpy as np
    >>> from pymc_geodesic.directional import directional_summary
    >>> x = np.random.default_rng(1).normal([0.0, 10.0, 10.0], 1.0, size=(2, 500, 3))
    >>> mu = x / np.linalg.norm(x, axis=-1, keepdims=True)
    >>> table = directional_summary(az.from_dict({"posterior": {"mu": mu}}), ci_prob=0.94)
    >>> table[["lon", "lat", "cap94_radius"]].round(0)
          lon   lat  cap94_radius
    mu   90.0  45.0          10.0
    """
    units_per_radian(unit)
    if coordinates not in COORDINATES:
        raise ValueError(f"`coordinates` must be one of {COORDINATES}, got {coordinates!r}.")
    if fmt not in ("wide", "xarray"):
        raise ValueError(f"`fmt` must be 'wide' or 'xarray', got {fmt!r}.")
    check_axial(axial, idata, group)
    wishes = _Wishes(probability(ci_prob), unit, coordinates, axial, hdr)
    variables = chosen(
        idata, var_names, ("direction", "angle", "frame"), angles=angles, group=group
    )
    rows = {name: _of_variable(variable, name, wishes) for name, variable in variables.items()}
    columns = list(dict.fromkeys(key for each in rows.values() for row in each for key in row))
    columns.sort(key=_place)
    result = xr.Dataset(
        {name: _as_array(variables[name], rows[name], columns) for name in variables}
    )
    if round_to is not None:
        result = result.round(round_to)
    if fmt == "xarray":
        return result
    return dataset_to_dataframe(result, sample_dims=["summary"]).T


def _place(column: str) -> tuple[int, int, str]:
    """Put the columns of every table in one order, whatever variable came first."""
    order = (
        "lon",
        "lat",
        "dec",
        "inc",
        "angle",
        "x",
        "res",
        "sph",
        "cap",
        "arc",
        "hdr",
        "ess",
        "r_",
    )
    place = next(i for i, start in enumerate(order) if column.startswith(start))
    return place, len(column), column


def _as_array(
    variable: xr.DataArray, rows: list[dict[str, float]], columns: list[str]
) -> xr.DataArray:
    """Give the rows of one variable its dimensions back, without those of one point."""
    core = {"angle": 0, "direction": 1, "frame": 2}[variable.attrs["manifold"]]
    point = variable.isel(dict.fromkeys(SAMPLE_DIMS, 0), drop=True)
    template = point.isel(dict.fromkeys(point.dims[point.ndim - core :], 0), drop=True)
    table = np.array([[row.get(column, np.nan) for column in columns] for row in rows])
    values = table.T.reshape(len(columns), *template.shape)
    return xr.DataArray(
        values, dims=("summary", *template.dims), coords={**template.coords, "summary": columns}
    )


def _of_variable(variable: xr.DataArray, name: str, wishes: _Wishes) -> list[dict[str, float]]:
    kind = variable.attrs["manifold"]
    if kind == "frame":
        return [_of_frames(each, wishes) for each in as_batches(variable, 2)]
    if kind == "angle":
        values = np.stack([np.cos(variable.values), np.sin(variable.values)], axis=-1)
        variable = xr.DataArray(values, dims=(*variable.dims, "component"), name=name)
    return [_of_directions(each, name, wishes) for each in as_batches(variable, 1)]


def _of_directions(draws: np.ndarray, name: str, wishes: _Wishes) -> dict[str, float]:
    """Summarise draws of one direction, shape (chain, draw, d)."""
    rows = draws.reshape(-1, draws.shape[-1])
    centre = centre_of(rows, is_axial(rows, name, wishes.axial))
    scale = units_per_radian(wishes.unit)
    row = _mean_columns(centre, wishes) | _spread_columns(centre)
    row[f"cap{wishes.percent}_radius"] = cap_around(rows, centre, wishes.prob, scale).radius
    if rows.shape[1] == 2:
        angle = scale * np.arctan2(rows[:, 1], rows[:, 0])
        row[f"arc{wishes.percent}_lb"], row[f"arc{wishes.percent}_ub"] = directional_hdi(
            angle, ci_prob=wishes.prob, axial=centre.axial, unit=wishes.unit
        )
    if wishes.hdr and rows.shape[1] in (2, 3):
        region = directional_hdr(rows, ci_prob=wishes.prob, axial=centre.axial)
        if rows.shape[1] == 2:
            row[f"hdr{wishes.percent}_arc"] = scale * region.area
        else:
            row[f"hdr{wishes.percent}_sr"] = region.area
            row[f"hdr{wishes.percent}_deg2"] = region.area_deg2
    turned = to_side(draws, centre.mean) if centre.axial else draws
    return row | _chain_columns(turned, turned @ centre.mean)


def _of_frames(draws: np.ndarray, wishes: _Wishes) -> dict[str, float]:
    """Summarise draws of one frame, shape (chain, draw, n, p)."""
    frames = draws.reshape(-1, *draws.shape[2:])
    centre = frame_centre(frames)
    cap = frame_cap(frames, wishes.prob, units_per_radian(wishes.unit))
    row = _spread_columns(centre) | {f"cap{wishes.percent}_radius": cap.radius}
    flat = draws.reshape(*draws.shape[:2], -1)
    if wishes.coordinates == "vector":
        row = {f"x{i}": value for i, value in enumerate(centre.mean.ravel())} | row
    return row | _chain_columns(flat, flat @ centre.mean.ravel())


def _mean_columns(centre: Centre, wishes: _Wishes) -> dict[str, float]:
    mean = centre.mean
    if wishes.coordinates == "vector":
        return {f"x{i}": float(value) for i, value in enumerate(mean)}
    if mean.size == 2:
        angle = float(np.arctan2(mean[1], mean[0]))
        if centre.axial:  # in the half turn that arcs of axes are in
            angle = np.pi / 2 - (np.pi / 2 - angle) % np.pi
        return {"angle": units_per_radian(wishes.unit) * angle}
    if mean.size > 3:
        return {}
    if wishes.coordinates == "lonlat":
        names, values = ("lon", "lat"), to_lonlat(mean, unit=wishes.unit)
    else:
        names = ("declination", "inclination")
        values = to_declination_inclination(mean, unit=wishes.unit)
    return {name: float(value) for name, value in zip(names, values, strict=True)}


def _spread_columns(centre: Centre) -> dict[str, float]:
    return {
        "resultant_length": centre.resultant_length,
        "spherical_variance": 1.0 - centre.resultant_length,
    }


def _chain_columns(draws: np.ndarray, along: np.ndarray) -> dict[str, float]:
    """How well chains agree on the coordinates of the embedding and on x·m."""
    all_of_it = xr.Dataset(
        {"x": (("chain", "draw", "coordinate"), np.concatenate([draws, along[..., None]], axis=-1))}
    )
    with warnings.catch_warnings():  # coordinates that never change have no R-hat
        warnings.simplefilter("ignore", RuntimeWarning)
        ess = {key: az.ess(all_of_it, method=key)["x"] for key in ("bulk", "tail")}
        r_hat = az.rhat(all_of_it)["x"]
    return {
        "ess_bulk_min": float(ess["bulk"].min()),
        "ess_tail_min": float(ess["tail"].min()),
        "r_hat_max": float(r_hat.max()),
    }
