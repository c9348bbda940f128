"""Trace plots and posterior predictive checks of directions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import xarray as xr
from arviz_base import convert_to_datatree

from pymc_geodesic.diagnostics.panels import COLORS, DARK, GRAY, Pen, draw, panels
from pymc_geodesic.directional.density import kernel_density, thin
from pymc_geodesic.directional.direction_variables import get_dataset, select_variables
from pymc_geodesic.directional.mean_direction import directional_mean
from pymc_geodesic.directional.plot_circular import (
    GRID,
    PolarAxes,
    as_vectors,
    require_north_first,
)
from pymc_geodesic.directional.plot_sphere import make_map
from pymc_geodesic.directional.projections import density_contour
from pymc_geodesic.directional.regions import (
    cap_about_mean,
    highest_density_regions,
    resolve_probabilities,
    resolve_probability,
)

if TYPE_CHECKING:
    from arviz_plots import PlotCollection

MAX_PREDICTIONS = 4000
"""Maximum number of predicted directions in the density estimate on the sphere."""


def angles_from_mean(draws: np.ndarray, mean: np.ndarray, axial: bool = False) -> np.ndarray:
    """Return angles between draws, shape (..., d), and their mean in degrees, signed in the plane.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.directional.plot_checks import angles_from_mean
    >>> angles_from_mean(np.array([[0.0, -1.0], [1.0, 0.0]]), np.array([1.0, 0.0])).tolist()
    [-90.0, 0.0]
    """
    along = draws @ mean
    if axial:
        draws, along = np.where(along < 0, -1.0, 1.0)[..., None] * draws, np.abs(along)
    if len(mean) == 2:
        return np.degrees(np.arctan2(mean[0] * draws[..., 1] - mean[1] * draws[..., 0], along))
    return np.degrees(2 * np.arcsin(np.minimum(np.linalg.norm(draws - mean, axis=-1) / 2, 1.0)))


def plot_trace(
    idata: xr.DataTree,
    var_names: str | Sequence[str] | None = None,
    *,
    group: str = "posterior",
    coords: Mapping[Any, Any] | None = None,
    sample_dims: str | Sequence[str] | None = None,
    angles: str | Sequence[str] = (),
    axial: bool = False,
    ci_prob: float | None = None,
    backend: str | None = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    r"""Trace plot of the angle between each draw and the mean direction, one line per chain.

    In the plane the angle is signed, positive counterclockwise, and is continuous where an angle
    passes ±180°. The horizontal lines show the radius of the credible cap.

    Parameters
    ----------
    idata : xarray.DataTree
        Draws.
    var_names : str or sequence of str, optional
        Directions or angles; by default all, see `direction_variables`.
    group : str
        Group of the tree.
    coords : mapping, optional
        Labels to select along dimensions, as in ArviZ.
    sample_dims : str or sequence of str, optional
        Dimensions of the draws; see `direction_variables`.
    angles : str or sequence of str
        Variables that are angles in radians.
    axial : bool
        Whether x and −x are equivalent.
    ci_prob : float, optional
        Probability of the cap; ``rcParams["stats.ci_prob"]`` by default.
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
    >>> from pymc_geodesic.directional import plot_trace
    >>> x = np.random.default_rng(1).normal(3.0, 1.0, size=(2, 150, 5))
    >>> mu = x / np.linalg.norm(x, axis=-1, keepdims=True)
    >>> plot_trace(az.from_dict({"posterior": {"mu": mu}})).backend
    'matplotlib'
    """
    prob = resolve_probability(ci_prob)
    variables = select_variables(
        idata, var_names, group, coords, sample_dims, angles, kinds=("direction", "angle")
    )
    vectors = xr.Dataset(  # lengths differ among variables
        {
            name: as_vectors(each).rename(component_=f"component_{name}")
            for name, each in variables.items()
        }
    )
    core = [f"component_{name}" for name in variables]
    pc_kwargs = {"col_wrap": 2} | pc_kwargs
    collection = panels(vectors, backend, core=core, size=(500, 280), **pc_kwargs)

    def panel(pen: Pen, part: xr.DataArray, name: str) -> None:
        draws = part.transpose("chain", "draw", ...).values
        rows = draws.reshape(-1, draws.shape[-1])
        center = directional_mean(rows, axial)
        distance = angles_from_mean(draws, center.mean, axial)
        steps = part["draw"].values
        for chain, values in enumerate(distance):
            pen.line(steps, values, color=COLORS[chain % len(COLORS)], width=0.8)
        radius = cap_about_mean(rows, center, prob, 180.0 / np.pi).radius
        for edge in (radius, -radius) if rows.shape[1] == 2 else (radius,):
            pen.line(steps[[0, -1]], np.full(2, edge), color=GRAY, width=1.5)
        pen.labels("draw", "degrees from the mean")
        pen.title(f"{name}: {prob:.0%} within {radius:.3g}°")

    draw(collection, "trace", panel)
    return collection


def plot_ppc_dist(
    idata: xr.DataTree,
    var_names: str | Sequence[str] | None = None,
    *,
    group: str = "posterior_predictive",
    coords: Mapping[Any, Any] | None = None,
    sample_dims: str | Sequence[str] | None = None,
    angles: str | Sequence[str] = (),
    num_samples: int = 30,
    projection: Literal["equal_area", "mollweide"] = "equal_area",
    compass: bool = False,
    max_points: int = 1000,
    ci_probs: float | Sequence[float] | None = None,
    backend: str | None = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    r"""Predictive check of directions in the plane or in space, and of angles.

    On the circle, the density of the data (dark) over those of predicted data sets. On the sphere,
    the data over contours of highest-density regions of the predictive distribution; the title
    states the percentage of the data in each region.

    Parameters
    ----------
    idata : xarray.DataTree
        With the groups `group` and ``observed_data``.
    var_names : str or sequence of str, optional
        Observed directions or angles; by default all, see `direction_variables`.
    group : str
        Group of predictions, ``"posterior_predictive"`` or ``"prior_predictive"``.
    coords : mapping, optional
        Labels to select along dimensions of data and predictions, as in ArviZ.
    sample_dims : str or sequence of str, optional
        Dimensions of the draws; see `direction_variables`.
    angles : str or sequence of str
        Variables that are angles in radians.
    num_samples : int
        Number of predicted data sets on the circle.
    projection : {"equal_area", "mollweide"}
        Map of directions in space; see `plot_sphere`.
    compass : bool
        Angles are clockwise from north, and the components of a direction are (north, east). Labels
        (east, north) of the components raise an error.
    max_points : int
        Data on the sphere are thinned evenly to this number.
    ci_probs : float or sequence of float, optional
        Probabilities of the regions on the sphere; 0.5 and ``rcParams["stats.ci_prob"]`` by
        default.
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
        If a group or a variable is missing.

    Examples
    --------
    >>> import arviz as az
    >>> import numpy as np
    >>> from pymc_geodesic.directional import plot_ppc_dist
    >>> rng = np.random.default_rng(1)
    >>> idata = az.from_dict({
    ...     "posterior_predictive": {"wind": rng.vonmises(0.0, 3.0, size=(2, 20, 40))},
    ...     "observed_data": {"wind": rng.vonmises(0.0, 3.0, size=40)},
    ... })
    >>> plot_ppc_dist(idata, angles="wind", num_samples=5).backend
    'matplotlib'
    """
    if projection not in ("equal_area", "mollweide"):
        raise ValueError(f"`projection` must be 'equal_area' or 'mollweide', got {projection!r}.")
    probs = resolve_probabilities(ci_probs)
    observed = select_variables(
        idata, var_names, "observed_data", coords, (), angles,
        kinds=("direction", "angle"), length=(2, 3),
    )  # fmt: skip
    tree = convert_to_datatree(idata)
    for name, variable in observed.items():
        if compass and variable.shape[-1] == 2:
            require_north_first(variable)
        if group not in tree.children or name not in tree[group]:
            raise ValueError(
                f"The group {group!r} holds no variable {name!r}. Add predictions with "
                "pm.sample_posterior_predictive(idata, extend_inferencedata=True)."
            )
    predictions = get_dataset(tree, group, coords, sample_dims)
    data = xr.Dataset({name: xr.DataArray(0.0) for name in observed})
    collection = panels(data, backend, size=(440, 440), **pc_kwargs)

    def panel(pen: Pen, _: xr.DataArray, name: str) -> None:
        kind = {"manifold": observed[name].attrs["manifold"]}
        seen = as_vectors(observed[name]).values
        drawn = predictions[name].assign_attrs(kind)
        sets = as_vectors(drawn).transpose("chain", "draw", ...).values
        seen = seen.reshape(-1, seen.shape[-1])
        sets = sets.reshape(-1, *seen.shape)
        if seen.shape[1] == 2:
            _circle(pen, name, seen, thin(sets, num_samples), compass)
        else:
            _sphere(pen, name, seen, sets, probs, projection, max_points)

    draw(collection, "ppc", panel)
    return collection


def _circle(pen: Pen, name: str, seen: np.ndarray, sets: np.ndarray, compass: bool) -> None:
    points = np.stack([np.cos(GRID), np.sin(GRID)], axis=-1)
    density = kernel_density(seen)
    heights = [kernel_density(each, concentration=density.concentration)(points)
               for each in sets]  # fmt: skip
    height = density(points)
    top = max(height.max(), *(each.max() for each in heights))
    polar = PolarAxes(pen, 2.05 * top, compass)
    for each in heights:
        polar.line(GRID, top + each, color=COLORS[0], width=0.8, alpha=0.4)
    polar.line(GRID, top + height, color=DARK, width=2.0)
    polar.line(GRID, np.full(GRID.shape, top), color=GRAY, width=1.0)
    polar.draw_grid(circles=(1.0,))
    pen.legend({"data": DARK, "predicted": COLORS[0]})
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
    # Data sets vary fastest, so that thinning keeps draws of the whole posterior.
    predicted = thin(sets.swapaxes(0, 1).reshape(-1, 3), MAX_PREDICTIONS)
    mean = directional_mean(predicted, False).mean
    sphere_map = make_map(pen, projection, np.concatenate([seen, predicted]), mean)
    sphere_map.draw_graticule()
    sphere_map.points(thin(seen, max_points), color=DARK, alpha=0.5)
    counts = []
    density = kernel_density(predicted)
    height = density(seen)
    for index, region in enumerate(highest_density_regions(density, predicted, sorted(probs))):
        sphere_map.line(
            density_contour(density, region.level, mean), color=COLORS[0], width=3.0 - index
        )
        counts.append(f"{(height >= region.level).mean():.0%} of data in {region.ci_prob:.0%}")
    sphere_map.title(f"{name}: " + ", ".join(counts))
