"""Summary table of directions, axes, angles and orthonormal frames."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import arviz as az
import numpy as np
import pandas as pd
import xarray as xr
from arviz_base import dataset_to_dataframe

from pymc_geodesic.diagnostics.posterior_draws import SAMPLE_DIMS
from pymc_geodesic.directional.coordinates import (
    to_declination_inclination,
    to_lonlat,
    units_per_radian,
)
from pymc_geodesic.directional.direction_variables import Kind, select_variables
from pymc_geodesic.directional.mean_direction import (
    DirectionalMean,
    align_to_axis,
    check_axial,
    directional_mean,
    mean_frame,
    resolve_axial,
    stack_batches,
)
from pymc_geodesic.directional.regions import (
    cap_about_mean,
    format_percent,
    frame_cap,
    hdi,
    hdr,
    resolve_probability,
)

COORDINATES = ("lonlat", "declination_inclination", "vector")


class _Options(NamedTuple):
    """Options of `summary`."""

    prob: float
    unit: Literal["deg", "rad"]
    coordinates: str
    axial: bool | str | Sequence[str] | None
    with_hdr: bool

    @property
    def percent(self) -> str:
        return format_percent(self.prob)


def summary(
    idata: xr.DataTree,
    var_names: str | Sequence[str] | None = None,
    unit: Literal["deg", "rad"] = "deg",
    *,
    group: str = "posterior",
    coords: Mapping[Any, Any] | None = None,
    sample_dims: str | Sequence[str] | None = None,
    fmt: Literal["wide", "xarray"] = "wide",
    ci_prob: float | None = None,
    round_to: int | None = None,
    coordinates: Literal["lonlat", "declination_inclination", "vector"] = "lonlat",
    angles: str | Sequence[str] = (),
    axial: bool | str | Sequence[str] | None = None,
    hdr: bool = True,
) -> pd.DataFrame | xr.Dataset:
    r"""Summarize directions, axes, angles and orthonormal frames in a table, one row for each.

    The columns are:

    ``lon``, ``lat``, or ``declination``, ``inclination``, or ``angle``, or ``x0``, ``x1``, …
        The mean direction :math:`m = \bar x / \lVert\bar x\rVert`, or the principal axis, in the
        plane from −90° to 90°. Vectors of more than three components only have columns with
        ``coordinates="vector"``.
    ``resultant_length``, ``spherical_variance``
        :math:`\bar R = \lVert\bar x\rVert`, for axes after alignment of the draws with the
        principal axis, and :math:`1 - \bar R` (Mardia and Jupp 2000, sections 2.3 and 9.2; some
        authors use twice that on the sphere). For frames :math:`\operatorname{tr} S / p` with the
        singular values S of the mean matrix.
    ``cap89_radius``
        Radius of the geodesic cap around m that contains 89 % of the draws, `ci_prob` in percent;
        see `credible_cap`. For frames the angle :math:`\arccos(\operatorname{tr}(X^\top M) / p)`.
    ``arc89_lb``, ``arc89_ub``
        In the plane, the shortest arc that contains 89 % of the draws; see `hdi`.
    ``hdr89_arc``, or ``hdr89_sr`` and ``hdr89_deg2``
        Length in the plane, or area in space, of the highest-density region, for axes of both
        sides; see `hdr`.
    ``ess_bulk_min``, ``ess_tail_min``, ``r_hat_max``
        Extreme over the components of the vector and :math:`x \cdot m`. They are not computed from
        angles, which are discontinuous. Axes are aligned first.

    Parameters
    ----------
    idata : xarray.DataTree
        Draws with the dimensions ``chain`` and ``draw``.
    var_names : str or sequence of str, optional
        Variables; by default all that are directions, angles or frames by the rules of
        `direction_variables`.
    unit : {"deg", "rad"}
        Unit of all angles. Areas are given in steradians and in square degrees.
    group : str
        Group of the tree.
    coords : mapping, optional
        Labels to select along dimensions, as in ArviZ.
    sample_dims : str or sequence of str, optional
        Dimensions of the draws; see `direction_variables`.
    fmt : {"wide", "xarray"}
        A data frame, or a data set with the dimension ``summary``, which `xarray.merge` combines
        with that of ``arviz.summary(fmt="xarray")``: the columns have different names.
    ci_prob : float, optional
        Probability of the regions; ``rcParams["stats.ci_prob"]`` by default.
    round_to : int, optional
        Number of decimals.
    coordinates : {"lonlat", "declination_inclination", "vector"}
        Coordinates of mean directions in space.
    angles : str or sequence of str
        Variables that are angles in radians.
    axial : bool, str, sequence of str or None
        Whether x and −x are equivalent, for all directions or those named. With None a direction
        is treated as an axis, with a warning, if the first moment vanishes (resultant length below
        0.1) and the second shows an axis.
    hdr : bool
        Whether to compute highest-density regions, which takes about 0.5 s for each direction.

    Returns
    -------
    pandas.DataFrame or xarray.Dataset

    Raises
    ------
    ValueError
        If there is no such variable, or none that `axial` names, or an argument has an invalid
        value.

    Examples
    --------
    >>> import arviz as az
    >>> import numpy as np
    >>> import pymc_geodesic as pg
    >>> x = np.random.default_rng(1).normal([0.0, 10.0, 10.0], 1.0, size=(2, 500, 3))
    >>> mu = x / np.linalg.norm(x, axis=-1, keepdims=True)
    >>> table = pg.directional.summary(az.from_dict({"posterior": {"mu": mu}}), ci_prob=0.94)
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
    options = _Options(resolve_probability(ci_prob), unit, coordinates, axial, hdr)
    kinds: tuple[Kind, ...] = ("direction", "angle", "frame")
    variables = select_variables(idata, var_names, group, coords, sample_dims, angles, kinds=kinds)
    rows = {
        name: _summarize_variable(variable, name, options) for name, variable in variables.items()
    }
    columns = list(dict.fromkeys(key for each in rows.values() for row in each for key in row))
    columns.sort(key=_column_order)
    result = xr.Dataset(
        {name: _as_array(variables[name], rows[name], columns) for name in variables}
    )
    if round_to is not None:
        result = result.round(round_to)
    if fmt == "xarray":
        return result
    return dataset_to_dataframe(result, sample_dims=["summary"]).T


def _column_order(column: str) -> tuple[int, int, str]:
    """Return the sort key of a column, which does not depend on the order of variables."""
    prefixes = [
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
    ]
    index = next(i for i, prefix in enumerate(prefixes) if column.startswith(prefix))
    return index, len(column), column


def _as_array(
    variable: xr.DataArray, rows: list[dict[str, float]], columns: list[str]
) -> xr.DataArray:
    """Return the rows of one variable with its batch dimensions."""
    core = {"angle": 0, "direction": 1, "frame": 2}[variable.attrs["manifold"]]
    point = variable.isel(dict.fromkeys(SAMPLE_DIMS, 0), drop=True)
    template = point.isel(dict.fromkeys(point.dims[point.ndim - core :], 0), drop=True)
    table = np.array([[row.get(column, np.nan) for column in columns] for row in rows])
    values = table.T.reshape(len(columns), *template.shape)
    return xr.DataArray(
        values, dims=("summary", *template.dims), coords={**template.coords, "summary": columns}
    )


def _summarize_variable(
    variable: xr.DataArray, name: str, options: _Options
) -> list[dict[str, float]]:
    kind = variable.attrs["manifold"]
    if kind == "frame":
        return [_summarize_frame(each, options) for each in stack_batches(variable, 2)]
    if kind == "angle":
        values = np.stack([np.cos(variable.values), np.sin(variable.values)], axis=-1)
        variable = xr.DataArray(values, dims=(*variable.dims, "component"), name=name)
    return [_summarize_direction(each, name, options) for each in stack_batches(variable, 1)]


def _summarize_direction(draws: np.ndarray, name: str, options: _Options) -> dict[str, float]:
    """Summarize draws of one direction, shape (chain, draw, d)."""
    rows = draws.reshape(-1, draws.shape[-1])
    center = directional_mean(rows, resolve_axial(rows, name, options.axial))
    scale = units_per_radian(options.unit)
    row = _mean_columns(center, options) | _dispersion_columns(center)
    row[f"cap{options.percent}_radius"] = cap_about_mean(rows, center, options.prob, scale).radius
    if rows.shape[1] == 2:
        angle = scale * np.arctan2(rows[:, 1], rows[:, 0])
        row[f"arc{options.percent}_lb"], row[f"arc{options.percent}_ub"] = hdi(
            angle, ci_prob=options.prob, axial=center.axial, unit=options.unit
        )
    if options.with_hdr and rows.shape[1] in (2, 3):
        region = hdr(rows, ci_prob=options.prob, axial=center.axial)
        if rows.shape[1] == 2:
            row[f"hdr{options.percent}_arc"] = scale * region.area
        else:
            row[f"hdr{options.percent}_sr"] = region.area
            row[f"hdr{options.percent}_deg2"] = region.area_deg2
    aligned = align_to_axis(draws, center.mean) if center.axial else draws
    return row | _convergence_columns(aligned, aligned @ center.mean)


def _summarize_frame(draws: np.ndarray, options: _Options) -> dict[str, float]:
    """Summarize draws of one frame, shape (chain, draw, n, p)."""
    frames = draws.reshape(-1, *draws.shape[2:])
    center = mean_frame(frames)
    cap = frame_cap(frames, options.prob, units_per_radian(options.unit))
    row = _dispersion_columns(center) | {f"cap{options.percent}_radius": cap.radius}
    flat = draws.reshape(*draws.shape[:2], -1)
    if options.coordinates == "vector":
        row = {f"x{i}": value for i, value in enumerate(center.mean.ravel())} | row
    return row | _convergence_columns(flat, flat @ center.mean.ravel())


def _mean_columns(center: DirectionalMean, options: _Options) -> dict[str, float]:
    mean = center.mean
    if options.coordinates == "vector":
        return {f"x{i}": float(value) for i, value in enumerate(mean)}
    if mean.size == 2:
        angle = float(np.arctan2(mean[1], mean[0]))
        if center.axial:  # in (−π/2, π/2], as arcs of axes
            angle = np.pi / 2 - (np.pi / 2 - angle) % np.pi
        return {"angle": units_per_radian(options.unit) * angle}
    if mean.size > 3:
        return {}
    if options.coordinates == "lonlat":
        names, values = ("lon", "lat"), to_lonlat(mean, unit=options.unit)
    else:
        names = ("declination", "inclination")
        values = to_declination_inclination(mean, unit=options.unit)
    return {name: float(value) for name, value in zip(names, values, strict=True)}


def _dispersion_columns(center: DirectionalMean) -> dict[str, float]:
    return {
        "resultant_length": center.resultant_length,
        "spherical_variance": 1.0 - center.resultant_length,
    }


def _convergence_columns(draws: np.ndarray, along: np.ndarray) -> dict[str, float]:
    """Return ESS and R-hat of the coordinates of the embedding and x·m."""
    coordinates = xr.Dataset(
        {"x": (("chain", "draw", "coordinate"), np.concatenate([draws, along[..., None]], axis=-1))}
    )
    with warnings.catch_warnings():  # R-hat of a constant coordinate is NaN
        warnings.simplefilter("ignore", RuntimeWarning)
        ess = {key: az.ess(coordinates, method=key)["x"] for key in ("bulk", "tail")}
        r_hat = az.rhat(coordinates)["x"]
    return {
        "ess_bulk_min": float(ess["bulk"].min()),
        "ess_tail_min": float(ess["tail"].min()),
        "r_hat_max": float(r_hat.max()),
    }
