"""Traces of directions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from pymc_geodesic.diagnostics.plots.panels import COLOURS, GREY, Pen, draw, panels
from pymc_geodesic.directional.circles import as_plane
from pymc_geodesic.directional.kinds import chosen
from pymc_geodesic.directional.mean_direction import centre_of
from pymc_geodesic.directional.regions import cap_around, probability

if TYPE_CHECKING:
    from arviz_plots import PlotCollection


def angles_from_mean(draws: np.ndarray, mean: np.ndarray, axial: bool = False) -> np.ndarray:
    """Return degrees between draws, shape (..., d), and their mean, with a sign in the plane.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.directional.plot_direction_trace import angles_from_mean
    >>> angles_from_mean(np.array([[0.0, -1.0], [1.0, 0.0]]), np.array([1.0, 0.0])).tolist()
    [-90.0, 0.0]
    """
    along = draws @ mean
    if axial:
        draws, along = np.where(along < 0, -1.0, 1.0)[..., None] * draws, np.abs(along)
    if len(mean) == 2:
        return np.degrees(np.arctan2(mean[0] * draws[..., 1] - mean[1] * draws[..., 0], along))
    return np.degrees(2 * np.arcsin(np.minimum(np.linalg.norm(draws - mean, axis=-1) / 2, 1.0)))


def plot_direction_trace(
    idata: xr.DataTree,
    var_names: str | Sequence[str] | None = None,
    *,
    angles: str | Sequence[str] = (),
    axial: bool = False,
    ci_prob: float | None = None,
    group: str = "posterior",
    backend: str | None = None,
    **figure: Any,
) -> PlotCollection:
    r"""Trace of directions of any dimension: how far each draw is from the mean, one line a chain.

    In the plane and for angles the distance has a sign, counterclockwise, and no jump where the
    angle itself passes ±180°. The straight lines are the radius of the credible cap.

    Parameters
    ----------
    idata : xarray.DataTree
        Draws.
    var_names : str or sequence of str, optional
        Directions or angles; by default all, see `direction_variables`.
    angles : str or sequence of str
        Variables that are angles in radians.
    axial : bool
        Whether x and −x are the same.
    ci_prob : float, optional
        Probability of the cap; ``rcParams["stats.ci_prob"]`` by default.
    group : str
        Group of the tree.
    backend : {"matplotlib", "plotly", "bokeh"}, optional
        ``rcParams["plot.backend"]`` by default.
    **figure
        Passed to the back end's function that makes the figure, as ``figsize=``.

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
    >>> from pymc_geodesic.directional import plot_direction_trace
    >>> x = np.random.default_rng(1).normal(3.0, 1.0, size=(2, 150, 5))
    >>> mu = x / np.linalg.norm(x, axis=-1, keepdims=True)
    >>> plot_direction_trace(az.from_dict({"posterior": {"mu": mu}})).backend
    'matplotlib'
    """
    variables = chosen(idata, var_names, ("direction", "angle"), angles=angles, group=group)
    prob = probability(ci_prob)
    core = {}
    for name, each in variables.items():
        vectors = as_plane(each)  # a component_ of its own: lengths differ among variables
        core[name] = vectors.rename(component_=f"component_{name}")
    dims = tuple(f"component_{name}" for name in core)
    collection = panels(xr.Dataset(core), backend, core=dims, size=(500, 280), col_wrap=2, **figure)

    def panel(pen: Pen, part: xr.DataArray, name: str) -> None:
        draws = part.transpose("chain", "draw", ...).values
        rows = draws.reshape(-1, draws.shape[-1])
        centre = centre_of(rows, axial)
        distance = angles_from_mean(draws, centre.mean, axial)
        steps = part["draw"].values
        for chain, values in enumerate(distance):
            pen.line(steps, values, color=COLOURS[chain % len(COLOURS)], width=0.8)
        radius = cap_around(rows, centre, prob, 180.0 / np.pi).radius
        for edge in (radius, -radius) if rows.shape[1] == 2 else (radius,):
            pen.line(steps[[0, -1]], np.full(2, edge), color=GREY, width=1.5)
        pen.labels("draw", "degrees from the mean")
        pen.title(f"{name}: {prob:.0%} within {radius:.3g}°")

    draw(collection, "trace", panel)
    return collection
