"""Observed directions beside those that the posterior predicts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import xarray as xr
from arviz_base import convert_to_datatree

from pymc_geodesic.diagnostics.plots.panels import COLOURS, DARK, GREY, Pen, draw, panels
from pymc_geodesic.directional.circles import Dial, as_plane, require_north_first
from pymc_geodesic.directional.density import directional_density, thinned
from pymc_geodesic.directional.kinds import chosen
from pymc_geodesic.directional.mean_direction import centre_of
from pymc_geodesic.directional.outlines import outline
from pymc_geodesic.directional.plot_circular_density import GRID
from pymc_geodesic.directional.plot_sphere import make_map
from pymc_geodesic.directional.regions import probabilities, regions_of

if TYPE_CHECKING:
    from arviz_plots import PlotCollection


_PREDICTED = 4000


def plot_directional_ppc(
    idata: xr.DataTree,
    var_names: str | Sequence[str] | None = None,
    *,
    num_pp_samples: int = 30,
    projection: Literal["equal_area", "mollweide"] = "equal_area",
    angles: str | Sequence[str] = (),
    ci_probs: float | Sequence[float] | None = None,
    compass: bool = False,
    max_points: int = 1000,
    backend: str | None = None,
    **figure: Any,
) -> PlotCollection:
    r"""Posterior predictive check of directions in the plane or in space, and of angles.

    On the circle, the density of the data (dark) over those of data sets drawn from the posterior
    predictive. On the sphere, the data over outlines of highest-density regions of the posterior
    predictive; the title says which share of the data lies in each.

    Parameters
    ----------
    idata : xarray.DataTree
        With the groups ``posterior_predictive`` and ``observed_data``.
    var_names : str or sequence of str, optional
        Observed directions or angles; by default all, see `direction_variables`.
    num_pp_samples : int
        Data sets of the posterior predictive that are shown on the circle.
    projection : {"equal_area", "mollweide"}
        Map of directions in space; see `plot_sphere`.
    angles : str or sequence of str
        Variables that are angles in radians.
    ci_probs : float or sequence of float, optional
        Probabilities of the regions on the sphere; 0.5 and ``rcParams["stats.ci_prob"]`` by
        default.
    compass : bool
        Angles clockwise from north. The components of a direction in the plane are then
        (north, east): swap those of (east, north), which are refused where labels of their
        dimension tell them.
    max_points : int
        Data on the sphere are thinned evenly to this number.
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
        If a group or a variable is missing.

    Examples
    --------
    >>> import arviz as az
    >>> import numpy as np
    >>> from pymc_geodesic.directional import plot_directional_ppc
    >>> rng = np.random.default_rng(1)
    >>> idata = az.from_dict({
    ...     "posterior_predictive": {"wind": rng.vonmises(0.0, 3.0, size=(2, 20, 40))},
    ...     "observed_data": {"wind": rng.vonmises(0.0, 3.0, size=40)},
    ... })
    >>> plot_directional_ppc(idata, angles="wind", num_pp_samples=5).backend
    'matplotlib'
    """
    if projection not in ("equal_area", "mollweide"):
        raise ValueError(f"`projection` must be 'equal_area' or 'mollweide', got {projection!r}.")
    probs = probabilities(ci_probs)
    observed = chosen(
        idata, var_names, ("direction", "angle"), angles=angles, group="observed_data",
        length=(2, 3),
    )  # fmt: skip
    tree = convert_to_datatree(idata)
    for name, variable in observed.items():
        if compass and variable.shape[-1] == 2:
            require_north_first(variable)
        if "posterior_predictive" not in tree.children or name not in tree["posterior_predictive"]:
            raise ValueError(
                f"The group 'posterior_predictive' holds no {name!r}: "
                "idata.extend(pm.sample_posterior_predictive(idata)) adds it."
            )
    data = xr.Dataset({name: xr.DataArray(0.0) for name in observed})
    collection = panels(data, backend, size=(440, 440), **figure)

    def panel(pen: Pen, _: xr.DataArray, name: str) -> None:
        kind = {"manifold": observed[name].attrs["manifold"]}
        seen = as_plane(observed[name]).values
        drawn = tree["posterior_predictive"].to_dataset()[name].assign_attrs(kind)
        sets = as_plane(drawn).transpose("chain", "draw", ...).values
        seen = seen.reshape(-1, seen.shape[-1])
        sets = sets.reshape(-1, *seen.shape)
        if seen.shape[1] == 2:
            _circle(pen, name, seen, thinned(sets, num_pp_samples), compass)
        else:
            _sphere(pen, name, seen, sets, probs, projection, max_points)

    draw(collection, "ppc", panel)
    return collection


def _circle(pen: Pen, name: str, seen: np.ndarray, sets: np.ndarray, compass: bool) -> None:
    points = np.stack([np.cos(GRID), np.sin(GRID)], axis=-1)
    density = directional_density(seen)
    heights = [directional_density(each, concentration=density.concentration)(points)
               for each in sets]  # fmt: skip
    height = density(points)
    top = max(height.max(), *(each.max() for each in heights))
    dial = Dial(pen, 2.05 * top, compass)
    for each in heights:
        dial.line(GRID, top + each, color=COLOURS[0], width=0.8, alpha=0.4)
    dial.line(GRID, top + height, color=DARK, width=2.0)
    dial.line(GRID, np.full(GRID.shape, top), color=GREY, width=1.0)
    dial.rule(circles=(1.0,))
    pen.key({"data": DARK, "predicted": COLOURS[0]})
    pen.title(name)


def _sphere(
    pen: Pen,
    name: str,
    seen: np.ndarray,
    sets: np.ndarray,
    probs: Sequence[float],
    projection: str,
    max_points: int,
) -> None:
    # One direction of each data set, then the next: thinning takes all of the posterior.
    predicted = thinned(sets.swapaxes(0, 1).reshape(-1, 3), _PREDICTED)
    mean = centre_of(predicted, False).mean
    net = make_map(pen, projection, np.concatenate([seen, predicted]), mean, None, None)
    net.frame()
    net.points(thinned(seen, max_points), color=DARK, alpha=0.5)
    shares = []
    density = directional_density(predicted)
    height = density(seen)
    for index, region in enumerate(regions_of(density, predicted, sorted(probs))):
        net.line(outline(density, region.level, mean), color=COLOURS[0], width=3.0 - index)
        shares.append(f"{(height >= region.level).mean():.0%} of data in {region.ci_prob:.0%}")
    net.title(f"{name}: " + ", ".join(shares))
